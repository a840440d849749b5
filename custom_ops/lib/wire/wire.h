// The wire format: the one definition of what a message looks like.
//
// A message carries the blocks of a bucket. A bucket is a list of tensors; each
// tensor is flattened and cut into blocks of kBlockSize consecutive elements,
// its last block may be partial, and the blocks of all tensors follow each
// other in list order.
//
//   offset 0                 MessageHeader                      16 bytes
//   codes_offset             blocks * CodeBytes(codec)
//   scales_offset            blocks * 2, HasScales(codec) only, bfloat16
//   padding_offset           zeros up to a multiple of kMessageAlignment
//
// A bucket can be cut into shards of ShardBlocks() blocks, a message for each.
// The blocks of the last shards that lie beyond the bucket's end are zeros.
//
// Codes of one and two bits are MXNet's: element 0 of a byte is in its top bit
// or two, bytes are in address order. Codes of three and four bits are in bit
// planes: 16 bytes have the lowest bits of the codes of a block, the next 16
// have the bits above them, and so on; element 0 of a byte is in its lowest
// bit. The codes after the last element of a partial block are 0. Codes of
// eight bits and counts are two's complement; of two counts in a byte the first
// is in the high bits. All numbers are little-endian.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <cstdint>
#include <string_view>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/numbers/host_device.h"

namespace tf_gc {

// A message is a row of int64 words: TensorFlow's collectives carry int64 on
// every device, and its GPU kernels keep it in device memory (unlike int32).
using WireWord = int64_t;
constexpr int64_t kWordBytes = sizeof(WireWord);

constexpr uint16_t kWireMagic = 0x4347;  // "GC"
constexpr uint8_t kWireVersion = 1;

constexpr int64_t kBlockSize = 128;        // elements
constexpr int64_t kScaleBytes = 2;         // bfloat16
constexpr int64_t kMessageAlignment = 16;  // bytes

// How the elements of a message are coded. A number from elsewhere may be none
// of these. A function that takes a Codec and cannot report an error traps
// then.
enum class Codec : uint8_t {
  kTwoBitFixed = 1,  // sends +threshold, -threshold or 0
  kTwoBitAuto = 2,   // sends +scale, -scale or 0, a scale for each block
  // The sum of all replicas' messages of a fixed codec. Each element has a
  // count of 4, 8 or 16 bits: its sum, divided by CountUnit().
  kCounts4 = 3,
  kCounts8 = 4,
  kCounts16 = 5,
  kOneBitFixed = 6,  // sends +1 or -1
  kOneBitAuto = 7,   // sends +scale or -scale, a scale for each block
  // These send plus or minus a level, or 0. The levels are parts of the block's
  // scale.
  kThreeBit = 8,  // 3 levels
  kFourBit = 9,   // 7 levels
  // Sends a whole number of the block's scale, from -127 to 127.
  kEightBit = 10,
};
// No codec, and how many numbers there are.
constexpr Codec kNoCodec = static_cast<Codec>(0);
constexpr int kEndOfCodecs = 11;

// A codec's name, for users and in attributes of ops, and its two variants.
struct CodecName {
  const char* name;
  Codec fixed;  // kNoCodec if it has automatic scales only
  Codec automatic;
};
inline constexpr CodecName kCodecNames[] = {
    {"two_bit", Codec::kTwoBitFixed, Codec::kTwoBitAuto},
    {"one_bit", Codec::kOneBitFixed, Codec::kOneBitAuto},
    {"three_bit", kNoCodec, Codec::kThreeBit},
    {"four_bit", kNoCodec, Codec::kFourBit},
    {"eight_bit", kNoCodec, Codec::kEightBit},
};

// Finds a codec by its name. False if there is none of that name, or not this
// variant of it.
inline bool FindCodec(std::string_view name, bool automatic, Codec* codec) {
  for (const CodecName& known : kCodecNames) {
    if (name != known.name) continue;
    *codec = automatic ? known.automatic : known.fixed;
    return *codec != kNoCodec;
  }
  return false;
}

// The name of a codec, "unknown" for counts and for values that are no codec.
constexpr const char* NameOf(Codec codec) {
  for (const CodecName& known : kCodecNames) {
    if (codec != kNoCodec &&
        (codec == known.fixed || codec == known.automatic)) {
      return known.name;
    }
  }
  return "unknown";
}

// Whether the parameters alone say which values are sent. Sums are counts then.
TF_GC_HOST_DEVICE constexpr bool IsFixed(Codec codec) {
  return codec == Codec::kTwoBitFixed || codec == Codec::kOneBitFixed;
}

// Whether the encoder chooses the values that are sent for each block. Sums are
// encoded again then.
TF_GC_HOST_DEVICE constexpr bool IsAuto(Codec codec) {
  return codec == Codec::kTwoBitAuto || codec == Codec::kOneBitAuto ||
         codec == Codec::kThreeBit || codec == Codec::kFourBit ||
         codec == Codec::kEightBit;
}

// Whether gradients are encoded with it, which excludes counts and values that
// are no codec.
TF_GC_HOST_DEVICE constexpr bool EncodesGradients(Codec codec) {
  return IsFixed(codec) || IsAuto(codec);
}

// Whether it holds sums of messages of a fixed codec.
TF_GC_HOST_DEVICE constexpr bool IsCounts(Codec codec) {
  return codec == Codec::kCounts4 || codec == Codec::kCounts8 ||
         codec == Codec::kCounts16;
}

// Whether each block has a scale. With kOneBitFixed the scale is 1, or NaN.
TF_GC_HOST_DEVICE constexpr bool HasScales(Codec codec) {
  return IsAuto(codec) || codec == Codec::kOneBitFixed;
}

// The most replicas whose sum is sent as counts.
constexpr int64_t kMaxReplicas = 32767;

// The bits of a count over 1 to kMaxReplicas replicas: the fewest that hold
// [-replicas, replicas] and CountNotFinite().
TF_GC_HOST_DEVICE constexpr int BitsOfCount(int64_t replicas) {
  return replicas <= 7 ? 4 : replicas <= 127 ? 8 : 16;
}

// The count of an element that was not finite on some replica.
TF_GC_HOST_DEVICE constexpr int CountNotFinite(int bits) {
  return -(1 << (bits - 1));
}

TF_GC_HOST_DEVICE constexpr Codec CountsCodec(int bits) {
  switch (bits) {
    case 4:
      return Codec::kCounts4;
    case 8:
      return Codec::kCounts8;
    case 16:
      return Codec::kCounts16;
  }
  Trap();
}

// The value that a count of 1 stands for. `codec` is fixed.
TF_GC_HOST_DEVICE constexpr float CountUnit(Codec codec, float threshold) {
  switch (codec) {
    case Codec::kTwoBitFixed:
      return threshold;
    case Codec::kOneBitFixed:
      return 1.0f;
    default:
      Trap();
  }
}

// The bits of an element's code or count.
TF_GC_HOST_DEVICE constexpr int CodeBits(Codec codec) {
  switch (codec) {
    case Codec::kTwoBitFixed:
    case Codec::kTwoBitAuto:
      return 2;
    case Codec::kCounts4:
      return 4;
    case Codec::kCounts8:
      return 8;
    case Codec::kCounts16:
      return 16;
    case Codec::kOneBitFixed:
    case Codec::kOneBitAuto:
      return 1;
    case Codec::kThreeBit:
      return 3;
    case Codec::kFourBit:
      return 4;
    case Codec::kEightBit:
      return 8;
  }
  Trap();
}

// The codec of sums of messages of an automatic codec that are to be rounded
// less than the messages were. Two bits would round a sum of one-bit messages
// hardly less than one bit does, and eight bits round little.
TF_GC_HOST_DEVICE constexpr Codec FinerSums(Codec codec) {
  const int bits = CodeBits(codec);
  return bits <= 2   ? Codec::kThreeBit
         : bits <= 4 ? Codec::kFourBit
                     : Codec::kEightBit;
}

// Whether sums of messages of `codec` may be sent by `sum_codec`.
TF_GC_HOST_DEVICE constexpr bool SumsIn(Codec codec, Codec sum_codec) {
  return IsAuto(codec) && (sum_codec == codec || sum_codec == FinerSums(codec));
}

// Whether codes of `bits` bits are in bit planes.
TF_GC_HOST_DEVICE constexpr bool InPlanes(int bits) {
  return bits == 3 || bits == 4;
}

// The bytes of a plane, which has a bit of each code of a block.
constexpr int64_t kPlaneBytes = kBlockSize / 8;

// The bytes of a block's codes or counts.
TF_GC_HOST_DEVICE constexpr int64_t CodeBytes(Codec codec) {
  return kBlockSize * CodeBits(codec) / 8;
}

// The bytes of a block in a message.
TF_GC_HOST_DEVICE constexpr int64_t BlockBytes(Codec codec) {
  return CodeBytes(codec) + (HasScales(codec) ? kScaleBytes : 0);
}

// The codes of the one-bit codecs are 1 for plus and 0 for minus, and there is
// none for "not finite": a block with an element that is not finite has the
// scale kScaleNaN. Codes of kThreeBit and kFourBit have the level's number
// in their low bits, from 1 for the smallest one, 0 for zero, and above it 1
// for minus; minus zero is "not finite". In kEightBit that is -128, which is
// CountNotFinite(). These are the codes of the two-bit codecs.
constexpr uint8_t kCodeZero = 0b00;
constexpr uint8_t kCodeNotFinite = 0b01;
constexpr uint8_t kCodeMinus = 0b10;
constexpr uint8_t kCodePlus = 0b11;
constexpr uint16_t kScaleNaN = 0x7fc0;

struct MessageHeader {
  uint16_t magic;
  uint8_t version;
  uint8_t codec;
  // Of a float32: the threshold, 0 for automatic scales. In counts it is the
  // value of a count of 1: the threshold of kTwoBitFixed, 1 for kOneBitFixed.
  uint32_t threshold_bits;
  int64_t blocks;
};
static_assert(sizeof(MessageHeader) == 16,
              "the header is 16 bytes on the wire");

inline MessageHeader HeaderOf(Codec codec, int64_t blocks, float threshold) {
  return {kWireMagic, kWireVersion, static_cast<uint8_t>(codec),
          BitCast<uint32_t>(threshold), blocks};
}

TF_GC_HOST_DEVICE constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

TF_GC_HOST_DEVICE constexpr int64_t NumBlocks(int64_t elements) {
  return elements / kBlockSize + (elements % kBlockSize != 0);
}

// The most blocks of a message: more than fit into any memory, and so few that
// the bytes of a message fit into an int64.
constexpr int64_t kMaxBlocks = int64_t{1} << 54;

// The blocks of each of `shards` >= 1 shards of a bucket of `blocks` blocks.
TF_GC_HOST_DEVICE constexpr int64_t ShardBlocks(int64_t blocks,
                                                int64_t shards) {
  return blocks / shards + (blocks % shards != 0);
}

// Byte offsets in a message of `blocks` <= kMaxBlocks blocks of a codec.
struct MessageLayout {
  int64_t blocks;
  int64_t code_bytes;  // of a block
  int64_t codes_offset;
  int64_t scales_offset;
  int64_t padding_offset;
  int64_t size;

  constexpr int64_t words() const { return size / kWordBytes; }

  // Where the codes (counts) or the scales of a block are. Byte is uint8_t,
  // const or not.
  template <typename Byte>
  TF_GC_HOST_DEVICE Byte* Codes(Byte* message, int64_t block) const {
    return message + codes_offset + block * code_bytes;
  }
  TF_GC_HOST_DEVICE uint16_t* Scales(uint8_t* message, int64_t block) const {
    return reinterpret_cast<uint16_t*>(message + scales_offset) + block;
  }
  TF_GC_HOST_DEVICE const uint16_t* Scales(const uint8_t* message,
                                           int64_t block) const {
    return reinterpret_cast<const uint16_t*>(message + scales_offset) + block;
  }
};

constexpr MessageLayout LayoutOf(Codec codec, int64_t blocks) {
  const int64_t codes = static_cast<int64_t>(sizeof(MessageHeader));
  const int64_t scales = codes + blocks * CodeBytes(codec);
  const int64_t end = codes + blocks * BlockBytes(codec);
  return {blocks, CodeBytes(codec),
          codes,  scales,
          end,    RoundUp(end, kMessageAlignment)};
}

// The blocks of a message of `words` words, -1 if no message has that many.
constexpr int64_t BlocksOf(Codec codec, int64_t words) {
  if (words < 0 || words > LayoutOf(codec, kMaxBlocks).words()) return -1;
  // A block is no shorter than the alignment: two numbers of blocks cannot give
  // messages of one length.
  const int64_t bytes =
      words * kWordBytes - static_cast<int64_t>(sizeof(MessageHeader));
  const int64_t blocks = bytes < 0 ? -1 : bytes / BlockBytes(codec);
  return blocks < 0 || LayoutOf(codec, blocks).words() != words ? -1 : blocks;
}

}  // namespace tf_gc
