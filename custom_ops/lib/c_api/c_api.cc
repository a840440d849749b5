#include "custom_ops/lib/c_api/c_api.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <type_traits>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/cpu/float_mode.h"
#include "custom_ops/lib/low_rank/factors.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "custom_ops/lib/wire/wire.h"

namespace {

// call(T*) with the type of the number `dtype`, 0 if it is unknown.
template <typename Call>
int ForType(int dtype, Call call) {
  return tf_gc::ForType(static_cast<tf_gc::DType>(dtype), 0, call);
}

// Whether the codec with a number, if there is one, is as `takes` says.
bool Takes(bool (*takes)(tf_gc::Codec), int codec) {
  return codec >= 0 && codec <= UINT8_MAX &&
         takes(static_cast<tf_gc::Codec>(codec));
}

// Whether there are messages of `blocks` blocks that may be packed.
bool Packs(int codec, int64_t blocks) {
  return Takes(tf_gc::IsCompactible, codec) && blocks >= 0 &&
         blocks <= tf_gc::kMaxBlocks;
}

// `run`, or one task after the other if it is null.
tf_gc::RunTasks RunsTasks(tf_gc_run_tasks run) {
  return [run](int64_t tasks, const std::function<void(int64_t)>& task) {
    if (run == nullptr) {
      for (int64_t i = 0; i < tasks; ++i) task(i);
      return;
    }
    const auto call = [](void* context, int64_t index) {
      (*static_cast<const std::function<void(int64_t)>*>(context))(index);
    };
    run(tasks, call, const_cast<void*>(static_cast<const void*>(&task)));
  };
}

// Whether a codec keeps residuals of a dtype.
bool Keeps(int codec, int residual_dtype) {
  const auto dtype = static_cast<tf_gc::DType>(residual_dtype);
  return dtype == tf_gc::DType::kFloat ||
         ((dtype == tf_gc::DType::kBFloat16 || dtype == tf_gc::DType::kInt8) &&
          Takes(tf_gc::IsAuto, codec));
}

bool IsCountBits(int bits) { return bits == 4 || bits == 8 || bits == 16; }

}  // namespace

int tf_gc_encode(int codec, int dtype, const void* gradient,
                 const void* residual_in, void* residual_out, int64_t size,
                 float threshold, uint8_t* codes, uint16_t* scales,
                 int residual_dtype) {
  if (!Takes(tf_gc::EncodesGradients, codec) || !Keeps(codec, residual_dtype)) {
    return 0;
  }
  const auto kind = static_cast<tf_gc::Codec>(codec);
  return ForType(dtype, [=](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tf_gc::Encode(kind, static_cast<const T*>(gradient), residual_in,
                  residual_out, size, threshold, codes, scales,
                  static_cast<tf_gc::DType>(residual_dtype));
    return 1;
  });
}

int tf_gc_decode_sum(int codec, int dtype, const uint8_t* const* codes,
                     const uint16_t* const* scales, int64_t replicas,
                     int64_t size, float threshold, void* sum) {
  if (!Takes(tf_gc::EncodesGradients, codec)) return 0;
  const auto kind = static_cast<tf_gc::Codec>(codec);
  return ForType(dtype, [=](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tf_gc::DecodeSum(kind, codes, scales, replicas, size, threshold,
                     static_cast<T*>(sum));
    return 1;
  });
}

int tf_gc_reencode(int codec, int sum_codec, int dtype,
                   const uint8_t* const* codes, const uint16_t* const* scales,
                   int64_t messages, const void* gradient,
                   const void* residual_in, void* residual_out, int64_t size,
                   uint8_t* sum_codes, uint16_t* sum_scales,
                   int residual_dtype) {
  if (!tf_gc_sums_in(codec, sum_codec) || !Keeps(codec, residual_dtype)) {
    return 0;
  }
  const auto kind = static_cast<tf_gc::Codec>(codec);
  const auto of_sum = static_cast<tf_gc::Codec>(sum_codec);
  return ForType(dtype, [=](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tf_gc::Reencode(kind, of_sum, codes, scales, messages,
                    static_cast<const T*>(gradient), residual_in, residual_out,
                    size, sum_codes, sum_scales,
                    static_cast<tf_gc::DType>(residual_dtype));
    return 1;
  });
}

int tf_gc_count(int codec, const uint8_t* const* codes,
                const uint16_t* const* scales, int64_t replicas, int64_t blocks,
                int bits, uint8_t* counts) {
  if (!Takes(tf_gc::IsFixed, codec) || !IsCountBits(bits)) return 0;
  const auto kind = static_cast<tf_gc::Codec>(codec);
  tf_gc::Count(kind, codes, scales, replicas, blocks, bits, counts);
  return 1;
}

int tf_gc_decode_counts(int dtype, const uint8_t* counts, int bits,
                        int64_t size, float unit, void* sum) {
  if (!IsCountBits(bits)) return 0;
  return ForType(dtype, [=](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tf_gc::DecodeCounts(counts, bits, size, unit, static_cast<T*>(sum));
    return 1;
  });
}

int64_t tf_gc_pack_capacity(int codec, int64_t blocks) {
  if (!Packs(codec, blocks)) return 0;
  const auto kind = static_cast<tf_gc::Codec>(codec);
  return tf_gc::PackCapacity(kind, tf_gc::LayoutOf(kind, blocks));
}

int64_t tf_gc_pack(int codec, int64_t blocks, const int32_t* periods,
                   int num_periods, const uint8_t* message, uint8_t* compact,
                   tf_gc_run_tasks run) {
  if (!Packs(codec, blocks) || !tf_gc::ArePeriods(periods, num_periods)) {
    return 0;
  }
  const auto kind = static_cast<tf_gc::Codec>(codec);
  tf_gc::Periods candidates = {num_periods, {}};
  std::copy_n(periods, num_periods, candidates.values);
  return tf_gc::Pack(kind, tf_gc::LayoutOf(kind, blocks), candidates, message,
                     compact, RunsTasks(run));
}

int tf_gc_unpack(int codec, int64_t blocks, const uint8_t* compact,
                 int64_t size, uint8_t* message, tf_gc_run_tasks run) {
  if (!Packs(codec, blocks)) return 0;
  const auto kind = static_cast<tf_gc::Codec>(codec);
  return tf_gc::Unpack(kind, tf_gc::LayoutOf(kind, blocks), compact, size,
                       message, RunsTasks(run));
}

int tf_gc_wire_version(void) { return tf_gc::kWireVersion; }

int tf_gc_compact_version(void) { return tf_gc::kCompactVersion; }

int tf_gc_block_size(void) { return static_cast<int>(tf_gc::kBlockSize); }

float tf_gc_max_magnitude(void) { return tf_gc::kMaxMagnitude; }

int tf_gc_most_rank(void) { return tf_gc::kMostRank; }

int tf_gc_most_periods(void) { return tf_gc::kMostPeriods; }

int tf_gc_largest_period(void) {
  return static_cast<int>(tf_gc::kSegmentBlocks);
}

int tf_gc_tile_blocks(void) { return static_cast<int>(tf_gc::kRun); }

const char* tf_gc_codec_name(int index) {
  if (index < 0 || index >= static_cast<int>(std::size(tf_gc::kCodecNames))) {
    return nullptr;
  }
  return tf_gc::kCodecNames[index].name;
}

int tf_gc_codec(const char* name, int automatic) {
  tf_gc::Codec codec;
  if (!tf_gc::FindCodec(name, automatic != 0, &codec)) return 0;
  return static_cast<int>(codec);
}

int tf_gc_block_bytes(int codec, int64_t replicas) {
  if (!Takes(tf_gc::EncodesGradients, codec) || replicas < 1) return 0;
  const auto kind = static_cast<tf_gc::Codec>(codec);
  if (tf_gc::IsAuto(kind) || replicas == 1) {
    return static_cast<int>(tf_gc::BlockBytes(kind));
  }
  if (replicas > tf_gc::kMaxReplicas) return 0;
  return static_cast<int>(
      tf_gc::BlockBytes(tf_gc::CountsCodec(tf_gc::BitsOfCount(replicas))));
}

int tf_gc_sums_in(int codec, int sum_codec) {
  return Takes(tf_gc::IsAuto, codec) && Takes(tf_gc::IsAuto, sum_codec) &&
         tf_gc::SumsIn(static_cast<tf_gc::Codec>(codec),
                       static_cast<tf_gc::Codec>(sum_codec));
}

int tf_gc_is_compactible(int codec) {
  return Takes(tf_gc::IsCompactible, codec);
}

int tf_gc_best_target(void) { return static_cast<int>(tf_gc::BestTarget()); }

int tf_gc_active_target(void) {
  return static_cast<int>(tf_gc::ActiveTarget());
}

int tf_gc_force_target(int target) {
  return tf_gc::ForceTarget(static_cast<tf_gc::Target>(target));
}

uint64_t tf_gc_float_mode(void) { return tf_gc::FloatMode(); }

void tf_gc_set_float_mode(uint64_t mode) { tf_gc::SetFloatMode(mode); }
