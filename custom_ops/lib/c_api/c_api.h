// The codec library for callers that are not C++: Python, tests and benchmarks.
//
// `codec` is the number of a tf_gc::Codec (wire/wire.h), which tf_gc_codec()
// gives, `dtype` and `residual_dtype` of a tf_gc::DType (numbers/floats.h), and
// `target` of a tf_gc::Target. `bits` is 4, 8 or 16. Everything else is as in
// cpu/codec.h and compact/compact.h.
// Functions that return an int return 1, or 0 if a number is unknown or not one
// that the function takes; they do nothing then.

#pragma once

#include <stdint.h>

#if defined(__GNUC__)
#define TF_GC_EXPORT __attribute__((visibility("default")))
#else
#define TF_GC_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

TF_GC_EXPORT int tf_gc_encode(int codec, int dtype, const void* gradient,
                              const void* residual_in, void* residual_out,
                              int64_t size, float threshold, uint8_t* codes,
                              uint16_t* scales, int residual_dtype);

TF_GC_EXPORT int tf_gc_decode_sum(int codec, int dtype,
                                  const uint8_t* const* codes,
                                  const uint16_t* const* scales,
                                  int64_t replicas, int64_t size,
                                  float threshold, void* sum);

TF_GC_EXPORT int tf_gc_reencode(int codec, int sum_codec, int dtype,
                                const uint8_t* const* codes,
                                const uint16_t* const* scales, int64_t messages,
                                const void* gradient, const void* residual_in,
                                void* residual_out, int64_t size,
                                uint8_t* sum_codes, uint16_t* sum_scales,
                                int residual_dtype);

TF_GC_EXPORT int tf_gc_count(int codec, const uint8_t* const* codes,
                             const uint16_t* const* scales, int64_t replicas,
                             int64_t blocks, int bits, uint8_t* counts);

TF_GC_EXPORT int tf_gc_decode_counts(int dtype, const uint8_t* counts, int bits,
                                     int64_t size, float unit, void* sum);

// kWireVersion, kCompactVersion, kBlockSize, kMaxMagnitude, kMostRank,
// kMostPeriods, kSegmentBlocks as the largest period, and kRun as the least
// number of blocks that may be packed by columns.
TF_GC_EXPORT int tf_gc_wire_version(void);
TF_GC_EXPORT int tf_gc_compact_version(void);
TF_GC_EXPORT int tf_gc_block_size(void);
TF_GC_EXPORT float tf_gc_max_magnitude(void);
TF_GC_EXPORT int tf_gc_most_rank(void);
TF_GC_EXPORT int tf_gc_most_periods(void);
TF_GC_EXPORT int tf_gc_largest_period(void);
TF_GC_EXPORT int tf_gc_tile_blocks(void);

// The name of a codec, for `index` from 0 on; null after the last one.
TF_GC_EXPORT const char* tf_gc_codec_name(int index);

// The number of the codec with this name, the automatic or the fixed one. 0 if
// there is none of that name.
TF_GC_EXPORT int tf_gc_codec(const char* name, int automatic);

// Bytes of a block in a message with the sum of `replicas` messages of `codec`,
// or in such a message itself. 0 if `codec` is unknown or they are too many.
TF_GC_EXPORT int tf_gc_block_bytes(int codec, int64_t replicas);

// Whether tf_gc_reencode() may encode sums of messages of `codec` by
// `sum_codec`: 1 or 0.
TF_GC_EXPORT int tf_gc_sums_in(int codec, int sum_codec);

// Whether messages of `codec` have a compact form: 1 or 0.
TF_GC_EXPORT int tf_gc_is_compactible(int codec);

TF_GC_EXPORT int tf_gc_best_target(void);
TF_GC_EXPORT int tf_gc_active_target(void);
// 0 if the processor lacks it.
TF_GC_EXPORT int tf_gc_force_target(int target);

// The floating-point control register of the calling thread (MXCSR on x86), 0
// and without effect on processors that the library does not know.
TF_GC_EXPORT uint64_t tf_gc_float_mode(void);
TF_GC_EXPORT void tf_gc_set_float_mode(uint64_t mode);

// Calls task(context, 0), ..., task(context, tasks - 1), on any threads in any
// order, and returns after the last one.
typedef void (*tf_gc_task)(void* context, int64_t index);
typedef void (*tf_gc_run_tasks)(int64_t tasks, tf_gc_task task, void* context);

// As in compact/compact.h, for messages of `blocks` blocks. `run` may be
// null: tasks then run one after the other. All three return 0 for a codec
// whose messages are not packed and for a number of blocks that no message has,
// and tf_gc_pack() for periods that no segment has, or too many of them.
TF_GC_EXPORT int64_t tf_gc_pack_capacity(int codec, int64_t blocks);
TF_GC_EXPORT int64_t tf_gc_pack(int codec, int64_t blocks,
                                const int32_t* periods, int num_periods,
                                const uint8_t* message, uint8_t* compact,
                                tf_gc_run_tasks run);
TF_GC_EXPORT int tf_gc_unpack(int codec, int64_t blocks, const uint8_t* compact,
                              int64_t size, uint8_t* message,
                              tf_gc_run_tasks run);

#ifdef __cplusplus
}  // extern "C"
#endif
