// The recorders of recorder/recorder.h for Python. `recorder` is the number of
// one; without it nothing is done, and nothing read.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "custom_ops/lib/c_api/c_api.h"
#include "custom_ops/lib/recorder/recorder.h"

extern "C" {

TF_GC_EXPORT int64_t tf_gc_recorder_make() { return tf_gc::MakeRecorder(); }

TF_GC_EXPORT void tf_gc_recorder_free(int64_t recorder) {
  tf_gc::FreeRecorder(recorder);
}

TF_GC_EXPORT void tf_gc_recorder_measure_every(int64_t recorder,
                                               int64_t steps) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found != nullptr) found->MeasureEvery(steps);
}

TF_GC_EXPORT void tf_gc_recorder_forget(int64_t recorder, int64_t reduction) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found != nullptr) found->Forget(reduction);
}

// Writes the numbers of a tf_gc::Series, `most` at most, and returns how many
// there are.
TF_GC_EXPORT int64_t tf_gc_recorder_read(int64_t recorder, int64_t reduction,
                                         int series, int64_t most,
                                         double* numbers) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found == nullptr) return 0;
  const std::vector<double> all =
      found->Read(reduction, static_cast<tf_gc::Series>(series));
  const auto count = static_cast<int64_t>(all.size());
  std::copy_n(all.begin(), std::min(count, most), numbers);
  return count;
}

}  // extern "C"
