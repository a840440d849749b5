// The recorders of recorder/recorder.h for Python. `recorder` is the number of
// one; a function does nothing and returns 0 if there is none. `kind` is that
// of a tf_gc::StepKind.

#ifndef TF_GC_CUSTOM_OPS_LIB_C_API_RECORDER_API_H_
#define TF_GC_CUSTOM_OPS_LIB_C_API_RECORDER_API_H_

#include <stdint.h>

#include "custom_ops/lib/c_api/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

TF_GC_EXPORT int64_t tf_gc_recorder_make(void);
TF_GC_EXPORT void tf_gc_recorder_free(int64_t recorder);
TF_GC_EXPORT void tf_gc_recorder_measure_every(int64_t recorder, int64_t steps);
TF_GC_EXPORT void tf_gc_recorder_forget(int64_t recorder, int64_t reduction);
TF_GC_EXPORT int64_t tf_gc_recorder_steps(int64_t recorder, int64_t reduction,
                                          int kind);
// kIntervals.
TF_GC_EXPORT int64_t tf_gc_recorder_capacity(void);
// Writes up to kIntervals intervals, and returns how many.
TF_GC_EXPORT int64_t tf_gc_recorder_intervals(int64_t recorder,
                                              int64_t reduction, int kind,
                                              int64_t* intervals);
// The same of First().
TF_GC_EXPORT int64_t tf_gc_recorder_first(int64_t recorder, int64_t reduction,
                                          int64_t* intervals);
// The candidate of the latest step; -1 also if there is no such recorder.
TF_GC_EXPORT int64_t tf_gc_recorder_candidate(int64_t recorder,
                                              int64_t reduction);
// Writes the times of the latest trial if they are so many, and returns which
// candidate was chosen; else returns -1.
TF_GC_EXPORT int64_t tf_gc_recorder_trial(int64_t recorder, int64_t reduction,
                                          int64_t count, int64_t* times);
// Writes `count` values and returns the number of the step, from 1 on. Returns
// 0 if there are not so many.
TF_GC_EXPORT int64_t tf_gc_recorder_measured(int64_t recorder,
                                             int64_t reduction, int64_t count,
                                             double* values);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // TF_GC_CUSTOM_OPS_LIB_C_API_RECORDER_API_H_
