// The codecs over ranges of blocks, on the CPU. No TensorFlow here: pointers
// and counts.
//
// With p = gradient + residual, an element is "finite" if |p| < kMaxMagnitude.
// A finite element that is sent as s gets the residual p - s. In the two-bit
// codecs, and likewise in those of more bits, an element that is not finite
// gets the code kCodeNotFinite and keeps its residual. In the one-bit codecs a
// block with such an element gets the scale kScaleNaN, and all of its elements
// keep their residuals. Residuals may be null: then p = gradient, and what is
// not sent is dropped.
//
// `threshold` is used by the fixed codecs: positive and finite for
// kTwoBitFixed, finite for kOneBitFixed. `scales` is used where
// HasScales(codec). A codec or a number of bits that a function does not take
// ends the program.
//
// Every function works on one tensor, or on a range of it that starts at a
// block boundary. `size` counts elements; only the last block may be partial.
// Results are the same bits for every Target, number of threads and split into
// ranges.

#pragma once

#include <cstdint>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// Instruction sets, those of x86 in ascending order.
enum class Target : int { kScalar = 0, kAvx2 = 1, kAvx512 = 2, kNeon = 3 };

// The best target of this processor.
Target BestTarget();
// The target in use: BestTarget() unless one was forced.
Target ActiveTarget();
// Makes all later calls use `target`, for tests and benchmarks. Returns false
// and changes nothing if the processor lacks it.
bool ForceTarget(Target target);

// `codec` is fixed or automatic, T is float, Half or BFloat16. `residual_in`
// and `residual_out` are either the same array or do not overlap, with elements
// of `residual_dtype`: float32 or, of automatic codecs, bfloat16 or, in blocks,
// int8 (codec/eight_bit_block.h). `codes` gets NumBlocks(size) *
// CodeBytes(codec) bytes, padding included, `scales` NumBlocks(size) bfloat16
// values.
template <typename T>
void Encode(Codec codec, const T* gradient, const void* residual_in,
            void* residual_out, int64_t size, float threshold, uint8_t* codes,
            uint16_t* scales, DType residual_dtype = DType::kFloat);

// Writes the sum over `replicas` >= 1 messages, in their order. codes[r] and
// scales[r] point at this tensor's (or range's) first block in message r. Reads
// nothing but NumBlocks(size) blocks of each and writes `size` elements,
// whatever the messages hold.
//
// kTwoBitFixed: (number of plus codes - number of minus codes) * threshold, NaN
// if any code is kCodeNotFinite. The others: float32 additions in the order of
// the messages. A 16-bit T is rounded once, at the end, to nearest even.
template <typename T>
void DecodeSum(Codec codec, const uint8_t* const* codes,
               const uint16_t* const* scales, int64_t replicas, int64_t size,
               float threshold, T* sum);

// Encodes by `sum_codec` as Encode does, with p = (gradient + residual) + sum,
// where `sum` is DecodeSum's over `messages` >= 0 messages of `codec`, in
// float32. An element that is not finite in a message is not finite here.
// SumsIn(codec, sum_codec).
template <typename T>
void Reencode(Codec codec, Codec sum_codec, const uint8_t* const* codes,
              const uint16_t* const* scales, int64_t messages,
              const T* gradient, const void* residual_in, void* residual_out,
              int64_t size, uint8_t* sum_codes, uint16_t* sum_scales,
              DType residual_dtype = DType::kFloat);

// Writes `blocks` blocks of counts of `bits` bits, which is 4, 8 or 16: the
// number of plus codes less the number of minus codes over `replicas` messages,
// CountNotFinite() where any of them says "not finite". 1 <= `replicas` <=
// kMaxReplicas, and `bits` >= BitsOfCount(replicas). `codec` is fixed.
void Count(Codec codec, const uint8_t* const* codes,
           const uint16_t* const* scales, int64_t replicas, int64_t blocks,
           int bits, uint8_t* counts);

// Writes count * unit, or NaN. With CountUnit() these are the bits of DecodeSum
// over the messages that Count counted. Reads NumBlocks(size) blocks.
template <typename T>
void DecodeCounts(const uint8_t* counts, int bits, int64_t size, float unit,
                  T* sum);

}  // namespace tf_gc
