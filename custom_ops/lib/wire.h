// The wire format: the one definition of what a message looks like.
//
// A message carries the blocks of a bucket. A bucket is a list of tensors; each
// tensor is flattened and cut into blocks of kBlockSize consecutive elements,
// its last block may be partial, and the blocks of all tensors follow each
// other in list order.
//
//   offset 0                 MessageHeader                      16 bytes
//   codes_offset             blocks * CodeBytes(codec)
//   scales_offset            blocks * 2, codec kTwoBitAuto only, bfloat16
//   padding_offset           zeros up to a multiple of kMessageAlignment
//
// A bucket can be cut into shards of ShardBlocks() blocks, a message for each.
// The blocks of the last shards that lie beyond the bucket's end are zeros.
//
// Codes are MXNet's: element 0 of a byte is in its two top bits, bytes are in
// address order. The codes after the last element of a partial block are 00.
// Counts are two's complement; of two in a byte the first is in the high bits.
// All numbers are little-endian.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_WIRE_H_
#define TF_GC_CUSTOM_OPS_LIB_WIRE_H_

#include <cstdint>

// Before functions for CUDA's host and device code.
#if defined(__CUDACC__)
#define TF_GC_HOST_DEVICE __host__ __device__
#else
#define TF_GC_HOST_DEVICE
#endif

namespace tf_gc {

// A message is a row of int64 words: TensorFlow's collectives carry int64 on
// every device, and its GPU kernels keep it in device memory (unlike int32).
using WireWord = int64_t;

constexpr uint16_t kWireMagic = 0x4347;  // "GC"
constexpr uint8_t kWireVersion = 1;

constexpr int64_t kBlockSize = 128;  // elements
constexpr int64_t kBitsPerCode = 2;
constexpr int64_t kCodesPerByte = 8 / kBitsPerCode;
constexpr int64_t kBlockCodeBytes = kBlockSize / kCodesPerByte;
constexpr int64_t kScaleBytes = 2;         // bfloat16
constexpr int64_t kMessageAlignment = 16;  // bytes

enum class Codec : uint8_t {
  kTwoBitFixed = 1,  // sends +threshold, -threshold or 0
  kTwoBitAuto = 2,   // sends +scale, -scale or 0, a scale for each block
  // The sum of the messages of kTwoBitFixed over replicas, in units of the
  // threshold: a count of this many bits for each element.
  kCounts4 = 3,
  kCounts8 = 4,
  kCounts16 = 5,
};

// The most replicas whose sum is sent as counts.
constexpr int64_t kMaxReplicas = 32767;

// The bits of a count over 1 to kMaxReplicas replicas: the fewest that hold
// [-replicas, replicas] and CountNotFinite().
TF_GC_HOST_DEVICE constexpr int CountBits(int64_t replicas) {
  return replicas <= 7 ? 4 : replicas <= 127 ? 8 : 16;
}

// The count of an element that was not finite on some replica.
TF_GC_HOST_DEVICE constexpr int CountNotFinite(int bits) {
  return -(1 << (bits - 1));
}

TF_GC_HOST_DEVICE constexpr Codec CountsCodec(int bits) {
  return bits == 4   ? Codec::kCounts4
         : bits == 8 ? Codec::kCounts8
                     : Codec::kCounts16;
}

// The bytes of a block's codes or counts.
TF_GC_HOST_DEVICE constexpr int64_t CodeBytes(Codec codec) {
  return codec == Codec::kCounts4    ? kBlockSize / 2
         : codec == Codec::kCounts8  ? kBlockSize
         : codec == Codec::kCounts16 ? kBlockSize * 2
                                     : kBlockCodeBytes;
}

// The two-bit codec of a threshold, of which 0 stands for "automatic". Takes
// the bits: a thread that flushes subnormal numbers takes those for 0.
constexpr Codec TwoBitCodec(uint32_t threshold_bits) {
  return (threshold_bits & 0x7fffffffu) == 0 ? Codec::kTwoBitAuto
                                             : Codec::kTwoBitFixed;
}

// The two bits of an element.
constexpr uint8_t kCodeZero = 0b00;
constexpr uint8_t kCodeNotFinite = 0b01;
constexpr uint8_t kCodeMinus = 0b10;
constexpr uint8_t kCodePlus = 0b11;

struct MessageHeader {
  uint16_t magic;
  uint8_t version;
  uint8_t codec;
  uint32_t threshold_bits;  // of the float32 threshold; 0 for kTwoBitAuto
  int64_t blocks;
};
static_assert(sizeof(MessageHeader) == 16,
              "the header is 16 bytes on the wire");

TF_GC_HOST_DEVICE constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

TF_GC_HOST_DEVICE constexpr int64_t NumBlocks(int64_t elements) {
  return elements / kBlockSize + (elements % kBlockSize != 0);
}

// The blocks of each of `shards` >= 1 shards of a bucket of `blocks` blocks.
TF_GC_HOST_DEVICE constexpr int64_t ShardBlocks(int64_t blocks,
                                                int64_t shards) {
  return blocks / shards + (blocks % shards != 0);
}

// Byte offsets in a message of `blocks` blocks.
struct MessageLayout {
  int64_t blocks;
  int64_t code_bytes;  // of a block
  int64_t codes_offset;
  int64_t scales_offset;
  int64_t padding_offset;
  int64_t size;

  constexpr int64_t words() const {
    return size / static_cast<int64_t>(sizeof(WireWord));
  }

  // Where the codes (counts) or the scales of a block are. Byte is uint8_t,
  // const or not.
  template <typename Byte>
  Byte* Codes(Byte* message, int64_t block) const {
    return message + codes_offset + block * code_bytes;
  }
  uint16_t* Scales(uint8_t* message, int64_t block) const {
    return reinterpret_cast<uint16_t*>(message + scales_offset) + block;
  }
  const uint16_t* Scales(const uint8_t* message, int64_t block) const {
    return reinterpret_cast<const uint16_t*>(message + scales_offset) + block;
  }
};

constexpr MessageLayout LayoutOf(Codec codec, int64_t blocks) {
  const int64_t codes = static_cast<int64_t>(sizeof(MessageHeader));
  const int64_t scales = codes + blocks * CodeBytes(codec);
  const int64_t end =
      scales + (codec == Codec::kTwoBitAuto ? blocks * kScaleBytes : 0);
  return {blocks, CodeBytes(codec),
          codes,  scales,
          end,    RoundUp(end, kMessageAlignment)};
}

// The blocks of a message of `words` words, for codecs other than kTwoBitAuto:
// -1 if no message has that many words.
constexpr int64_t BlocksOf(Codec codec, int64_t words) {
  const int64_t codes = words * static_cast<int64_t>(sizeof(WireWord)) -
                        static_cast<int64_t>(sizeof(MessageHeader));
  return codes < 0 || codes % CodeBytes(codec) != 0 ? -1
                                                    : codes / CodeBytes(codec);
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_WIRE_H_
