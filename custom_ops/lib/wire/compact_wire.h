// The compact wire: the one definition of what a packed message looks like
// after its codes and scales were made shorter.
//
//   offset 0                 MessageHeader, magic kCompactMagic        16 bytes
//   kScaleTableOffset        frequencies of the high bytes of scales   128 * 2
//   kSegmentsOffset          a SegmentHeader for each segment
//   then                     the segments
//   then                     zeros: 8 bytes or more, up to a multiple of
//                            kMessageAlignment
//
// The header is the message's, as in wire.h, but for the magic number. If the
// packed message would not be shorter than that message, the message is sent as
// it is.
//
// Each segment has kSegmentBlocks blocks, in their order; the last one has
// those that are left. These are its parts. Each of them begins at a multiple
// of 8 bytes and is followed by zeros up to the next one. In parts of bits the
// first bit is the lowest one of the first byte.
//
//   words    SegmentHeader::words uint16: the high bytes of the blocks' scales,
//            if HasScales(codec), then, for each plane, the kinds of its runs
//            and the bits of few ones and of some ones, coded by rANS (Duda
//            2013)
//   scales   the low byte of the scale of each block that is not empty, if
//            HasScales(codec)
//   counts   kKinds bytes for each plane: how often its runs are of each kind,
//            in proportion
//   mixed    SegmentHeader::mixed uint64: for each plane its mixed bits, which
//            begin at a multiple of 8 bytes
//
// A block is empty if the high byte of its scale is 0. Its scale is 0 then, and
// so are all of its codes, kCodeZero, which a decoder does not check.
// SegmentHeader::filled is the number of the other blocks. Without scales no
// block is empty.
//
// Runs. The codes of a segment are taken kRun at a time. If
// SegmentHeader::period is 0, a run is half a block of those that are not
// empty, in their order. Otherwise the blocks of the segment, empty ones too,
// are sorted by their number in the segment modulo the period; those with the
// same remainder by their scale as a number of 16 bits, if HasScales(codec);
// and those with the same scale stay in their order. Each kRun blocks in this
// new order, or each 2 * kRun if SegmentHeader::paired is 1, from the first on,
// are a tile. Its runs are the codes at position 0 of its first kRun blocks, in
// their order, then of the other kRun blocks, if there are any, then the codes
// at position 1, and so on. After the tiles come the halves of the blocks that
// are left, in the new order. So if the period fits the rows of a matrix, a run
// has codes of one column, which often have the same sign and are zero
// together, and rows with similar scales are often as sparse as each other.
//
// Position i is element i, except of two-bit codes. These are taken from the
// lowest bits of a byte up, so that the positions are elements 3, 2, 1, 0, 7,
// 6, 5, 4 and so on.
//
// Planes. Of the codes of a run, these bits are sent, each of NumPlanes(codec)
// planes by itself:
//
//   0        the map, kRun bits: 1 if the code is not kCodeZero
//   1        the signs of those that are not zero
//   2...     the common bits of magnitudes of those that are not zero, a plane
//            for each bit, in rising order
//   last     if HasRareBits(codec), the rare bit of the magnitudes that have a
//            common bit that is 1. Of the others that are not zero, the rare
//            bit is 1, since a magnitude is not 0
//
// The sign of a code in bit planes is its top bit, and the bits below are its
// magnitude; the sign of a two-bit code is its low bit, and its magnitude is 1.
// An eight-bit code is a number with its sign and magnitude.
// Of a magnitude's bits, if there are several, RareBit() is rare, that is least
// often 1 where it is sent, and the others are common.
//
// Kinds. If SegmentHeader::paired is 1, runs 0 and 1 share a kind in each
// plane, runs 2 and 3 do, and so on; if it is 0, each run has its own. A kind
// is 2 * class + inverted. If inverted is 1, all of the bits are inverted. Then
//
//   class 0  all of the bits are 0, and nothing else is sent of them
//   class 1  few are 1: the bits are coded with the chance kFewChance
//   class 2  some are 1: the bits are coded with the chance kSomeChance
//   class 3  mixed: the bits are sent as they are
//
// Each class of a plane has its bits one after the other, in the order of the
// runs. If at most one of a plane's counts is not 0, all of its runs are of
// that kind, or of kind 0, and there are no rows with kinds.
//
// A segment is not coded if it has a code "not finite" or a scale below zero,
// for which there are no symbols, if a block whose scale has a high byte of 0
// has another bit that is 1, or if coding would not make it shorter. It has the
// codes of its blocks, then their scales, as in wire.h, and zeros up to a
// multiple of 8 bytes. The fields of its header are 0.
//
// rANS. A symbol is a byte. A table has the frequency of each symbol, at least
// 1; the sum of a table is kFrequencySum. start(s) is the sum of the
// frequencies of the symbols below s. The frequencies of a plane's kinds are
// what Normalize() of frequencies.h makes of their counts. For bytes of bits
// they follow from the chance c of a 1, in 256ths: a byte with n ones has
// 1 + (c^n * (256 - c)^(8 - n) / 2^16) * 3840 / 2^48, where each division
// rounds down, and byte 0 has what is left of kFrequencySum as well. Which
// orders, kinds, counts and frequencies of scales a packer chooses is not part
// of the format; frequencies.h says what this library's packers choose.
//
// There are kCoderLanes lanes, each with a state of 32 bits. The bytes are
// coded in rows of one byte a lane: first the rows of the scales' high bytes,
// then, for each plane, the rows of the kinds, of the bits of class 1 and of
// the bits of class 2. Zeros fill the last row of each.
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

#pragma once

#include <cstdint>

#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// In the magic number, so below 10. Version 1 had "GZ" there.
constexpr int kCompactVersion = 6;
constexpr uint16_t kCompactMagic = 'G' | ('0' + kCompactVersion) << 8;

constexpr int kCoderLanes = 32;
constexpr int kFrequencyBits = 12;
constexpr uint32_t kFrequencySum = 1u << kFrequencyBits;
constexpr uint32_t kLowestState = 1u << 16;
constexpr int64_t kStateWords = 2 * kCoderLanes;

constexpr int kScaleSymbols = 128;
constexpr int kByteSymbols = 256;

constexpr int64_t kScaleTableOffset = sizeof(MessageHeader);
constexpr int64_t kSegmentsOffset = kScaleTableOffset + 2 * kScaleSymbols;

constexpr int64_t kSegmentBlocks = 4096;
constexpr int64_t kRun = 64;
constexpr int64_t kHalves = kBlockSize / kRun;  // of a block
constexpr int64_t kSegmentRuns = kSegmentBlocks * kHalves;

// The classes of a run's bits.
constexpr int kEqual = 0;
constexpr int kFew = 1;
constexpr int kSome = 2;
constexpr int kMixed = 3;
constexpr int kClasses = 4;
constexpr int kKinds = 2 * kClasses;

// Of a bit to be 1, in 256ths.
constexpr uint32_t kFewChance = 16;
constexpr uint32_t kSomeChance = 60;

struct SegmentHeader {
  uint32_t words;  // 0 if the segment is not coded, or at least kStateWords
  uint32_t mixed;
  uint32_t filled;  // blocks that are not empty
  uint16_t period;  // at most kSegmentBlocks
  uint16_t paired;  // 0 or 1; 0 if the period is
};
static_assert(sizeof(SegmentHeader) == 16,
              "the header of a segment is 16 bytes on the wire");

// Whether messages of the codec may be compact. One bit says plus or minus,
// which are equally frequent.
constexpr bool IsCompactible(Codec codec) {
  return codec == Codec::kTwoBitFixed || codec == Codec::kTwoBitAuto ||
         codec == Codec::kThreeBit || codec == Codec::kFourBit ||
         codec == Codec::kEightBit;
}

// The bits of a magnitude.
constexpr int MagnitudeBits(Codec codec) { return CodeBits(codec) - 1; }

// Whether magnitudes have several bits, of which one is rare.
constexpr bool HasRareBits(Codec codec) { return MagnitudeBits(codec) > 1; }

// Which bit of a magnitude is the rare one, if there are several. Of three
// levels it is the lowest, which tells the highest level from the middle one.
// Of more it is the top one: of seven levels it is 1 for the four largest.
constexpr int RareBit(int magnitude_bits) {
  return magnitude_bits == 2 ? 0 : magnitude_bits - 1;
}

// Which bit is number `i` if the rare one is counted first, and then the common
// ones in rising order.
constexpr int RareFirst(int magnitude_bits, int i) {
  const int rare = RareBit(magnitude_bits);
  return i == 0 ? rare : i <= rare ? i - 1 : i;
}

// The planes of a segment.
constexpr int NumPlanes(Codec codec) {
  return 1 + CodeBits(codec) - (HasRareBits(codec) ? 0 : 1);
}
constexpr int kMostPlanes = 9;

constexpr int64_t NumSegments(int64_t blocks) {
  return blocks / kSegmentBlocks + (blocks % kSegmentBlocks != 0);
}

constexpr int64_t BlocksInSegment(int64_t blocks, int64_t segment) {
  const int64_t left = blocks - segment * kSegmentBlocks;
  return left < kSegmentBlocks ? left : kSegmentBlocks;
}

// The only kind of a plane's runs, by its counts; kKinds if there are several.
constexpr int OnlyKind(const uint8_t* counts) {
  int found = 0;
  int kinds = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    if (counts[kind] == 0) continue;
    found = kind;
    ++kinds;
  }
  return kinds > 1 ? kKinds : found;
}

constexpr int64_t BytesOf(int64_t bits) { return RoundUp(bits, 8) / 8; }

// The bytes of `bits` bits and of the zeros that follow them.
constexpr int64_t BytesOfBits(int64_t bits) { return RoundUp(bits, 64) / 8; }

// The high byte of a scale if there are no scales: no block is empty.
constexpr uint8_t kHighByteOfNone = 1;

// Whether a segment of `blocks` blocks may have such a header.
constexpr bool FitsBlocks(Codec codec, int64_t blocks,
                          const SegmentHeader& segment) {
  if (segment.words == 0) {
    return segment.mixed == 0 && segment.filled == 0 && segment.period == 0 &&
           segment.paired == 0;
  }
  return segment.words >= kStateWords &&
         (HasScales(codec) ? segment.filled <= blocks
                           : segment.filled == blocks) &&
         segment.mixed <= NumPlanes(codec) * kSegmentRuns &&
         segment.period <= kSegmentBlocks &&
         segment.paired <= (segment.period == 0 ? 0 : 1);
}

// Rows of bytes, runs, and byte offsets in a segment that is coded.
struct SegmentLayout {
  int64_t scale_rows;
  int64_t runs;
  int64_t kinds;      // of a plane whose runs are of several kinds
  int64_t kind_rows;  // of these
  int64_t scales_offset;
  int64_t counts_offset;
  int64_t mixed_offset;
  int64_t size;
};

constexpr SegmentLayout LayoutOf(Codec codec, int64_t blocks,
                                 const SegmentHeader& segment) {
  const bool scaled = HasScales(codec);
  const int64_t runs =
      kHalves * (segment.period == 0 ? int64_t{segment.filled} : blocks);
  const int64_t kinds = runs / (1 + segment.paired);
  const int64_t scales = RoundUp(2 * int64_t{segment.words}, 8);
  const int64_t counts =
      scales + (scaled ? RoundUp(int64_t{segment.filled}, 8) : 0);
  const int64_t mixed = counts + NumPlanes(codec) * kKinds;
  return {scaled ? RoundUp(blocks, kCoderLanes) / kCoderLanes : 0,
          runs,
          kinds,
          RoundUp(kinds, kCoderLanes) / kCoderLanes,
          scales,
          counts,
          mixed,
          mixed + 8 * int64_t{segment.mixed}};
}

// The bytes of a segment that is not coded.
constexpr int64_t PlainBytes(Codec codec, int64_t blocks) {
  return RoundUp(blocks * BlockBytes(codec), 8);
}

constexpr int64_t SegmentBytes(Codec codec, int64_t blocks,
                               const SegmentHeader& segment) {
  return segment.words == 0 ? PlainBytes(codec, blocks)
                            : LayoutOf(codec, blocks, segment).size;
}

// Where the segments of a message of `blocks` blocks start.
constexpr int64_t SegmentsStart(int64_t blocks) {
  return kSegmentsOffset +
         NumSegments(blocks) * static_cast<int64_t>(sizeof(SegmentHeader));
}

// The bytes of a message whose segments end at `end`.
constexpr int64_t CompactBytes(int64_t end) {
  return RoundUp(end + 8, kMessageAlignment);
}

}  // namespace tf_gc
