// Count on a GPU.

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/messages.cuh"
#include "custom_ops/lib/cuda/tables.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {
namespace {

// 8 lanes share a block, and each has 16 elements that follow each other: no
// lane needs to know of another.
constexpr int kLanes = 8;
constexpr int kElements = kBlockSize / kLanes;
constexpr int kPerMultiprocessor = 4;  // thread blocks

struct CountParams {
  RowTable rows;
  MessageLayout layout;  // of the counts
  MessageHeader header;
  uint8_t* message;
  int blocks;
};

// The codes of a lane's elements, for adding up: field 3 - i % 4 of byte
// ByteOf(i) is for element i. A field is of kBits bits, and holds 1 plus
// the element's value, divided by kUnit.

struct TwoBitFields {
  static constexpr Codec kCodec = Codec::kTwoBitFixed;
  static constexpr int kBits = 2;
  static constexpr int kUnit = 1;

  struct Loaded {
    uint32_t codes;
  };

  static __device__ Loaded Load(int lane, const uint8_t* codes,
                                const uint16_t*) {
    return {reinterpret_cast<const uint32_t*>(codes)[lane]};
  }
  static __device__ uint32_t Fields(const Loaded& loaded) {
    return ValuesPlusOne(loaded.codes);
  }
  static __device__ int ByteOf(int i) { return i / 4; }
  // The low bit of a field is set if its element is not finite.
  static __device__ uint32_t NotFinite(const Loaded& loaded) {
    return NotFiniteCodes(loaded.codes);
  }
};

struct OneBitFields {
  static constexpr Codec kCodec = Codec::kOneBitFixed;
  static constexpr int kBits = 1;
  static constexpr int kUnit = 2;

  struct Loaded {
    uint16_t codes;
    uint16_t scale;
  };

  static __device__ Loaded Load(int lane, const uint8_t* codes,
                                const uint16_t* scale) {
    return {reinterpret_cast<const uint16_t*>(codes)[lane], *scale};
  }
  // The low half of each byte goes to the low bytes, the high half to the high
  // ones.
  static __device__ uint32_t Fields(const Loaded& loaded) {
    return (loaded.codes & 0x0f0fu) | (loaded.codes & 0xf0f0u) << 12;
  }
  static __device__ int ByteOf(int i) { return i / 8 + (i % 8 < 4 ? 2 : 0); }
  static __device__ uint32_t NotFinite(const Loaded& loaded) {
    return MaskOf(IsNaNScale(loaded.scale));
  }
};

// Adds fields up in bytes, and adds the bytes to ints before a byte overflows.
template <typename Fields>
struct Counter {
  static constexpr uint32_t kField = 0x01010101u * ((1 << Fields::kBits) - 1);
  // A byte holds the sum of the fields of this many messages; a field is at
  // most 2.
  static constexpr int kMessages = 127;

  __device__ void Add(const typename Fields::Loaded& loaded) {
    if (added == kMessages) Flush();
    ++added;
    not_finite |= Fields::NotFinite(loaded);
    const uint32_t fields = Fields::Fields(loaded);
    for (int k = 0; k < 4; ++k)
      bytes[k] += fields >> k * Fields::kBits & kField;
  }

  __device__ void Flush() {
    for (int i = 0; i < kElements; ++i) {
      sums[i] += bytes[3 - i % 4] >> 8 * Fields::ByteOf(i) & 0xffu;
    }
    for (int k = 0; k < 4; ++k) bytes[k] = 0;
    added = 0;
  }

  __device__ bool Marked(int i) const {
    const int bit = 8 * Fields::ByteOf(i) + (3 - i % 4) * Fields::kBits;
    return not_finite >> bit & 1;
  }

  int added = 0;
  uint32_t bytes[4] = {};
  uint32_t not_finite = 0;
  int sums[kElements] = {};
};

// Stores the counts of a lane with as few stores as possible.
template <int kBits>
__device__ inline void StoreLaneCounts(const uint16_t* count, uint8_t* to) {
  constexpr int kBytes = kElements * kBits / 8;
  uint8_t counts[kBytes];
  StoreCounts<kElements>(count, 0, kBits, counts);
  if constexpr (kBytes == 8) {
    uint2 word;
    memcpy(&word, counts, sizeof(word));
    *reinterpret_cast<uint2*>(to) = word;
  } else {
    for (int i = 0; i < kBytes; i += sizeof(uint4)) {
      uint4 word;
      memcpy(&word, counts + i, sizeof(word));
      *reinterpret_cast<uint4*>(to + i) = word;
    }
  }
}

template <typename Fields, int kBits>
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor)
    CountKernel(const __grid_constant__ CountParams params) {
  const int thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread == 0) WriteFrame(params.layout, params.header, params.message);
  const bool unexpected = AnyUnexpected(params.rows);
  const MessageLayout& layout = params.rows.layout;
  const int replicas = params.rows.count();
  const int lane = threadIdx.x % kLanes;
  for (int block = thread / kLanes; block < params.blocks;
       block += gridDim.x * (kThreads / kLanes)) {
    Counter<Fields> counter;
    const int64_t codes = CodesOffset<Fields::kCodec>(block);
    const int64_t scale = ScaleOffset(layout, block);
    ForEachRow<4>(
        params.rows,
        [=](const uint8_t* row) {
          return Fields::Load(lane, row + codes,
                              reinterpret_cast<const uint16_t*>(row + scale));
        },
        [&](const typename Fields::Loaded& loaded) { counter.Add(loaded); });
    counter.Flush();
    uint16_t count[kElements];
    for (int i = 0; i < kElements; ++i) {
      count[i] = CountOf(counter.sums[i] * Fields::kUnit, replicas,
                         counter.Marked(i) || unexpected, kBits);
    }
    StoreLaneCounts<kBits>(count, params.layout.Codes(params.message, block) +
                                      lane * (kElements * kBits / 8));
  }
}

template <typename Fields>
int LaunchCount(const CountParams& params, cudaStream_t stream) {
  const auto launch = [&](void (*kernel)(CountParams)) {
    return Launch(kernel, params, params.blocks, kThreads / kLanes,
                  kPerMultiprocessor, stream);
  };
  switch (BitsOfCount(params.rows.count())) {
    case 4:
      return launch(CountKernel<Fields, 4>);
    case 8:
      return launch(CountKernel<Fields, 8>);
    case 16:
      return launch(CountKernel<Fields, 16>);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int Count(Codec codec, float threshold, const uint8_t* const* rows,
          int64_t replicas, int64_t blocks, uint8_t* message,
          CUstream_st* stream) {
  if (!IsFixed(codec) || replicas < 1 || replicas > kMaxReplicas ||
      blocks >= kEndOfBlocks) {
    return cudaErrorInvalidValue;
  }
  if (!IsAligned(message)) return cudaErrorMisalignedAddress;
  CountParams params;
  const int error =
      FillRows(codec, blocks, threshold, rows, replicas, &params.rows);
  if (error != cudaSuccess) return error;
  const Codec counts = CountsCodec(BitsOfCount(replicas));
  params.layout = LayoutOf(counts, blocks);
  params.header = HeaderOf(counts, blocks, CountUnit(codec, threshold));
  params.message = message;
  params.blocks = static_cast<int>(blocks);
  switch (codec) {
    case Codec::kTwoBitFixed:
      return LaunchCount<TwoBitFields>(params, stream);
    case Codec::kOneBitFixed:
      return LaunchCount<OneBitFields>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tf_gc::gpu
