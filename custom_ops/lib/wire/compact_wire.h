// The compact wire: the one definition of what a packed message looks like
// after its codes and scales were coded by their frequency.
//
//   offset 0                 MessageHeader, magic kCompactMagic        16 bytes
//   kMapTableOffset          frequencies of the bytes of nonzero maps  256 * 2
//   kScaleTableOffset        frequencies of the high bytes of scales   128 * 2
//   kChanceOffset            uint64: the chance of a rare bit to be 1, in
//                            256ths; 0 if the codec has no rare bits
//   kSegmentsOffset          a SegmentHeader for each segment
//   then                     the segments
//   then                     zeros: 8 bytes or more, up to a multiple of
//                            kMessageAlignment
//
// The header is that of the message in wire.h, but for the magic number. If the
// packed message would not be shorter than that message, the message is sent as
// it is.
//
// Each segment has kSegmentBlocks blocks, in their order; the last one has
// those that are left. These are its parts. Each of them, and each plane,
// begins at a multiple of 8 bytes and is followed by zeros up to the next one.
// In parts of bits the first bit is the lowest one of the first byte.
//
//   words    SegmentHeader::words uint16: the high bytes of the blocks' scales,
//            if HasScales(codec), then the nonzero maps of the blocks that are
//            not empty, then the SegmentHeader::rare rare bits, if
//            HasRareBits(codec), coded by rANS (Duda 2013)
//   scales   the low byte of the scale of each block that is not empty, if
//            HasScales(codec)
//   signs    SegmentHeader::nonzeros bits
//   planes   SegmentHeader::nonzeros bits for each common bit of a magnitude,
//            in rising order
//
// A block is empty if the high byte of its scale is 0. Its codes and its scale
// are all 0 then, and nothing else is sent of it. SegmentHeader::filled is the
// number of the other blocks. Without scales no block is empty.
//
// A nonzero map has a bit for each code of a block, which is 1 if the code is
// not kCodeZero. Where codes are in bit planes, the bits are in the order of
// elements. Two-bit codes are taken from the lowest bits of a byte up, so that
// the bits are those of elements 3, 2, 1, 0, 7, 6, 5, 4 and so on.
//
// Signs, planes and rare bits are in the order of the map, and only those of
// codes that are not zero are sent. The sign of a code in bit planes is its top
// bit, and the bits below are its magnitude; the sign of a two-bit code is its
// low bit, and its magnitude is 1. Of a magnitude's bits, if there are several,
// RareBit() is rare, that is least often 1 where it is sent, and the others are
// common. The rare bit is sent only if a common one is 1: otherwise the rare
// bit is 1, since the magnitude is not 0.
//
// A segment is not coded if it has a code "not finite" or a scale below zero,
// for which there are no symbols, if a block whose scale has a high byte of 0
// has another bit that is 1, or if coding would not make it shorter. It has the
// codes of its blocks, then their scales, as in wire.h, and zeros up to a
// multiple of 8 bytes. The fields of its header are 0.
//
// rANS. A symbol is a byte. A table has the frequency of each symbol, at least
// 1; the sum of a table is kFrequencySum. start(s) is the sum of the
// frequencies of the symbols below s. The frequencies of bytes of rare bits
// follow from the chance c of a 1, which is from 1 to 255 then: that of a byte
// with n ones is 1 + (c^n * (256 - c)^(8 - n) / 2^16) * 3840 / 2^48, where each
// division rounds down, and byte 0, or byte 255 if c is above 128, has what is
// left of kFrequencySum as well. Which chance and which frequencies a packer
// chooses is not part of the format; frequencies.h says what those of this
// library choose.
//
// There are kCoderLanes lanes, each with a state of 32 bits. The bytes are
// coded in rows of one byte a lane: first the rows of the scales' high bytes,
// then those of the nonzero maps, then those of the rare bits. Zeros fill the
// last row of each.
//
// The decoder reads words from the back. The last kStateWords words are the
// first states, lane after lane, the low half of each first. To decode a row,
// each lane with state x finds the symbol s with
//   start(s) <= x % kFrequencySum < start(s) + frequency(s)
// and continues with the state
//   frequency(s) * (x >> kFrequencyBits) + x % kFrequencySum - start(s)
// Then the lanes whose state is below kLowestState take a word each: if there
// are n of them, they take the last n words that are left, the lowest lane the
// first of these, and x becomes x << 16 | word. After the last row all states
// are kLowestState and no word is left. The coder does all this in reverse.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_WIRE_COMPACT_WIRE_H_
#define TF_GC_CUSTOM_OPS_LIB_WIRE_COMPACT_WIRE_H_

#include <cstdint>

#include "custom_ops/lib/numbers/host_device.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// In the magic number, so below 10. Version 1 had "GZ" there.
constexpr int kCompactVersion = 4;
constexpr uint16_t kCompactMagic = 'G' | ('0' + kCompactVersion) << 8;

constexpr int kCoderLanes = 32;
constexpr int kFrequencyBits = 12;
constexpr uint32_t kFrequencySum = 1u << kFrequencyBits;
constexpr uint32_t kLowestState = 1u << 16;
constexpr int64_t kStateWords = 2 * kCoderLanes;

constexpr int kMapSymbols = 256;
constexpr int kScaleSymbols = 128;
constexpr int kRareSymbols = 256;

constexpr int64_t kMapTableOffset = sizeof(MessageHeader);
constexpr int64_t kScaleTableOffset = kMapTableOffset + 2 * kMapSymbols;
constexpr int64_t kChanceOffset = kScaleTableOffset + 2 * kScaleSymbols;
constexpr int64_t kSegmentsOffset = kChanceOffset + 8;

constexpr int64_t kSegmentBlocks = 1024;
constexpr int64_t kMapBytes = kBlockSize / 8;  // of a block

struct SegmentHeader {
  uint32_t words;  // 0 if the segment is not coded
  uint32_t nonzeros;
  uint32_t rare;
  uint32_t filled;  // blocks that are not empty
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

// Whether magnitudes have several bits, of which one is rare.
TF_GC_HOST_DEVICE constexpr bool HasRareBits(Codec codec) {
  return MagnitudeBits(codec) > 1;
}

// Which bit of a magnitude is the rare one, if there are several. Of three
// levels it is the lowest, which tells the highest level from the middle one.
// Of seven levels it is the top one, which is 1 for the four largest.
TF_GC_HOST_DEVICE constexpr int RareBit(int magnitude_bits) {
  return magnitude_bits == 2 ? 0 : magnitude_bits - 1;
}

// Which bit is number `i` if the rare one is counted first, and then the common
// ones in rising order.
TF_GC_HOST_DEVICE constexpr int RareFirst(int magnitude_bits, int i) {
  const int rare = RareBit(magnitude_bits);
  return i == 0 ? rare : i <= rare ? i - 1 : i;
}

// Whether a message of the codec may have this at kChanceOffset.
TF_GC_HOST_DEVICE constexpr bool IsChance(Codec codec, uint64_t chance) {
  return HasRareBits(codec) ? chance - 1 < 255 : chance == 0;
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

// Whether a block is not empty, by the high byte of its scale.
TF_GC_HOST_DEVICE constexpr bool IsFilled(int high) { return high != 0; }

// What stands for that byte if there are no scales.
constexpr uint8_t kHighByteOfNone = 1;
static_assert(IsFilled(kHighByteOfNone), "without scales no block is empty");

// Whether a segment of `blocks` blocks may have such a header.
TF_GC_HOST_DEVICE constexpr bool FitsBlocks(Codec codec, int64_t blocks,
                                            const SegmentHeader& segment) {
  if (segment.words == 0) {
    return segment.nonzeros == 0 && segment.rare == 0 && segment.filled == 0;
  }
  return segment.words >= kStateWords &&
         (HasScales(codec) ? segment.filled <= blocks
                           : segment.filled == blocks) &&
         segment.nonzeros <= segment.filled * kBlockSize &&
         segment.rare <= segment.nonzeros;
}

// Rows of bytes and byte offsets in a segment that is coded.
struct SegmentLayout {
  int64_t scale_rows;
  int64_t map_rows;
  int64_t rare_rows;
  int64_t scales_offset;
  int64_t signs_offset;
  int64_t planes_offset;
  int64_t size;
};

TF_GC_HOST_DEVICE constexpr SegmentLayout LayoutOf(
    Codec codec, int64_t blocks, const SegmentHeader& segment) {
  const bool scaled = HasScales(codec);
  const int64_t bits = BytesOfBits(segment.nonzeros);
  const int64_t scales = RoundUp(2 * int64_t{segment.words}, 8);
  const int64_t filled = segment.filled;
  const int64_t signs = scales + (scaled ? RoundUp(filled, 8) : 0);
  const int64_t planes = signs + bits;
  constexpr int64_t kRowBits = 8 * kCoderLanes;
  return {scaled ? RoundUp(blocks, kCoderLanes) / kCoderLanes : 0,
          RoundUp(filled * kMapBytes, kCoderLanes) / kCoderLanes,
          HasRareBits(codec) ? RoundUp(segment.rare, kRowBits) / kRowBits : 0,
          scales,
          signs,
          planes,
          planes + (MagnitudeBits(codec) - 1) * bits};
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
