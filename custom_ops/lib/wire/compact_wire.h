// The compact wire: the one definition of what a packed message looks like
// after its codes and scales were coded by their frequency.
//
//   offset 0                 MessageHeader, magic kCompactMagic        16 bytes
//   kMapTableOffset          frequencies of the bytes of nonzero maps  256 * 2
//   kScaleTableOffset        frequencies of the high bytes of scales   128 * 2
//   kSegmentsOffset          a SegmentHeader for each segment
//   then                     the segments
//   then                     zeros: 8 bytes or more, up to a multiple of
//                            kMessageAlignment
//
// A message that does not get smaller is sent as it is in wire.h.
//
// A segment has the kSegmentBlocks blocks that follow those of the segment
// before it; the last one has what is left. Its parts are in this order, each
// followed by zeros up to a multiple of 8 bytes:
//
//   words    SegmentHeader::words uint16: the nonzero maps of the blocks, and
//            the high bytes of their scales, as rANS words (Duda 2013)
//   scales   the low byte of each block's scale, if HasScales(codec)
//   signs    SegmentHeader::nonzeros bits
//   planes   as many bits for each bit of a magnitude above its lowest bit,
//            from the second lowest on
//   lowest   SegmentHeader::lowest bits
//
// A block's nonzero map has a bit for each code, which is 1 if the code is not
// kCodeZero. Of a codec in bit planes, the bits are in the order of elements.
// Of a two-bit codec, they are in the order in which the high bits of the codes
// are in the block, from the lowest bit of the first byte on. In that order the
// other parts have bits of those codes alone that are not zero. The sign of a
// code in bit planes is its top bit and the bits below are its magnitude; of a
// two-bit code it is the low bit, and the magnitude is 1. The lowest bit of a
// magnitude is sent if any bit above it is 1. Otherwise it is 1.
//
// No code says "not finite": a segment that has such a code, or does not get
// smaller, or has a scale below zero, has the codes and then the scales of its
// blocks as they are in wire.h, and no words.
//
// rANS: kCoderLanes states of 32 bits code kCoderLanes bytes at a time, a row,
// each lane one of them. First are the rows of the nonzero maps, then those of
// the scales; the last row of each may end with zeros that belong to no block.
// To decode a row, each lane takes the symbol s whose interval [start(s),
// start(s)
// + frequency(s)) holds the low kFrequencyBits bits of its state x:
//   x = frequency(s) * (x >> kFrequencyBits) + x % kFrequencySum - start(s)
// The lanes whose x is below kLowestState then take x = x << 16 | word: their
// words are the last ones that are left, the lowest lane takes the first of
// these. The states themselves come first and are the last words, low half
// first. After the last row all states are kLowestState, and no word is left.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_WIRE_COMPACT_WIRE_H_
#define TF_GC_CUSTOM_OPS_LIB_WIRE_COMPACT_WIRE_H_

#include <cstdint>

#include "custom_ops/lib/numbers/host_device.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

constexpr uint16_t kCompactMagic = 0x5a47;  // "GZ"

constexpr int kCoderLanes = 32;
constexpr int kFrequencyBits = 12;
constexpr uint32_t kFrequencySum = 1u << kFrequencyBits;
constexpr uint32_t kLowestState = 1u << 16;
constexpr int64_t kStateWords = 2 * kCoderLanes;

constexpr int kMapSymbols = 256;
constexpr int kScaleSymbols = 128;

constexpr int64_t kMapTableOffset = sizeof(MessageHeader);
constexpr int64_t kScaleTableOffset = kMapTableOffset + 2 * kMapSymbols;
constexpr int64_t kSegmentsOffset = kScaleTableOffset + 2 * kScaleSymbols;

constexpr int64_t kSegmentBlocks = 1024;
constexpr int64_t kMapBytes = kBlockSize / 8;  // of a block

struct SegmentHeader {
  uint32_t words;  // 0: the segment is not coded
  uint32_t nonzeros;
  uint32_t lowest;
  uint32_t reserved;  // 0
};
static_assert(sizeof(SegmentHeader) == 16,
              "the header of a segment is 16 bytes on the wire");

// Whether messages of the codec may be compact. One bit says plus or minus,
// which are equally frequent.
TF_GC_HOST_DEVICE constexpr bool IsCompactible(Codec codec) {
  return codec == Codec::kTwoBitFixed || codec == Codec::kTwoBitAuto ||
         codec == Codec::kThreeBit || codec == Codec::kFourBit;
}

// The bits of a magnitude.
TF_GC_HOST_DEVICE constexpr int MagnitudeBits(Codec codec) {
  return CodeBits(codec) - 1;
}

TF_GC_HOST_DEVICE constexpr int64_t NumSegments(int64_t blocks) {
  return blocks / kSegmentBlocks + (blocks % kSegmentBlocks != 0);
}

TF_GC_HOST_DEVICE constexpr int64_t BlocksInSegment(int64_t blocks,
                                                    int64_t segment) {
  const int64_t left = blocks - segment * kSegmentBlocks;
  return left < kSegmentBlocks ? left : kSegmentBlocks;
}

// The bytes of `bits` bits and of the zeros that follow them.
TF_GC_HOST_DEVICE constexpr int64_t BytesOfBits(int64_t bits) {
  return RoundUp(bits, 64) / 8;
}

// Byte offsets in a segment that is coded.
struct SegmentLayout {
  int64_t map_rows;
  int64_t scale_rows;
  int64_t scales_offset;
  int64_t signs_offset;
  int64_t planes_offset;
  int64_t lowest_offset;
  int64_t size;
};

TF_GC_HOST_DEVICE constexpr SegmentLayout LayoutOf(
    Codec codec, int64_t blocks, const SegmentHeader& segment) {
  const bool scaled = HasScales(codec);
  const int64_t bits = BytesOfBits(segment.nonzeros);
  const int64_t scales = RoundUp(2 * int64_t{segment.words}, 8);
  const int64_t signs = scales + (scaled ? RoundUp(blocks, 8) : 0);
  const int64_t planes = signs + bits;
  const int64_t lowest = planes + (MagnitudeBits(codec) - 1) * bits;
  return {RoundUp(blocks * kMapBytes, kCoderLanes) / kCoderLanes,
          scaled ? RoundUp(blocks, kCoderLanes) / kCoderLanes : 0,
          scales,
          signs,
          planes,
          lowest,
          lowest + BytesOfBits(segment.lowest)};
}

// The bytes of a segment that is not coded.
TF_GC_HOST_DEVICE constexpr int64_t PlainBytes(Codec codec, int64_t blocks) {
  return RoundUp(blocks * BlockBytes(codec), 8);
}

TF_GC_HOST_DEVICE constexpr int64_t SegmentBytes(Codec codec, int64_t blocks,
                                                 const SegmentHeader& segment) {
  return segment.words == 0 ? PlainBytes(codec, blocks)
                            : LayoutOf(codec, blocks, segment).size;
}

// Where the segments of a message of `blocks` blocks start.
TF_GC_HOST_DEVICE constexpr int64_t SegmentsStart(int64_t blocks) {
  return kSegmentsOffset +
         NumSegments(blocks) * static_cast<int64_t>(sizeof(SegmentHeader));
}

// The bytes of a message whose segments end at `end`.
TF_GC_HOST_DEVICE constexpr int64_t CompactBytes(int64_t end) {
  return RoundUp(end + 8, kMessageAlignment);
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_WIRE_COMPACT_WIRE_H_
