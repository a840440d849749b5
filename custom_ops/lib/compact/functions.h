// The functions that do the work of compact.h, a table for each instruction
// set. Internal to the library.

#ifndef TF_GC_CUSTOM_OPS_LIB_COMPACT_FUNCTIONS_H_
#define TF_GC_CUSTOM_OPS_LIB_COMPACT_FUNCTIONS_H_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {

// Bits for each code of a segment, and what a writer of 64 bits may write
// beyond them.
constexpr int64_t kStreamBytes = kSegmentBlocks * kMapBytes + 16;

// The parts of a segment before words are made of them, as in compact_wire.h.
struct SegmentParts {
  uint8_t map[kSegmentBlocks * kMapBytes];
  uint8_t signs[kStreamBytes];
  uint8_t planes[2][kStreamBytes];
  uint8_t rare[kStreamBytes];
};

// The same, of a segment on the wire, whose bits may be read to 8 bytes beyond
// their end.
struct SegmentBits {
  const uint8_t* map;
  const uint8_t* signs;
  const uint8_t* planes[2];
  const uint8_t* rare;
};

// Words that a row may add, and that may be written beyond its last one.
constexpr int64_t kRowWords = kCoderLanes;

// Segments that are decoded in turns, a row of each: a lane waits for its
// lookup most of the time, and one segment has too few lanes to make use of
// that time.
constexpr int kTogether = 2;

// Rows of a segment that are to be decoded. Decoding moves all but `first` on.
struct CodedRows {
  const uint16_t* first;  // word
  const uint16_t* end;    // of the words that are left
  uint32_t states[kCoderLanes];
  int64_t rows;
  uint8_t* bytes;  // where the rows go
};

struct CompactFunctions {
  // Counts as frequencies.h says. `scales` are those of all blocks, null if
  // there are none.
  void (*count)(Codec codec, const uint8_t* codes, const uint16_t* scales,
                int64_t blocks, SymbolCounts* counts);
  // Takes the codes of some blocks apart. `high` has the high byte of each
  // block's scale, kHighByteOfNone if there are none. False if a code says "not
  // finite", or if one of an empty block is not zero.
  bool (*split)(Codec codec, const uint8_t* codes, const uint8_t* high,
                int64_t blocks, SegmentParts* parts, SegmentHeader* header);
  // Puts the codes of some blocks together, given `high` as above. The parts
  // have as many bits as their codes need.
  void (*join)(Codec codec, const SegmentBits& bits, const uint8_t* high,
               int64_t blocks, uint8_t* codes);
  // Counts the bits that are 1 in `a` or in `b`, which have `bytes` bytes, a
  // multiple of 8.
  int64_t (*count_either)(const uint8_t* a, const uint8_t* b, int64_t bytes);
  // Codes rows of bytes, from the last to the first. Returns where the next
  // word goes; there is room for kRowWords more than that.
  uint16_t* (*code)(const CodingTable& table, const uint8_t* bytes,
                    int64_t rows, uint32_t* states, uint16_t* words);
  // Decodes the rows of `count` segments, at most kTogether, from the first row
  // to the last. False if there are too few words.
  bool (*decode)(const DecodingTable& table, int count,
                 CodedRows* const* segments);
};

const CompactFunctions& ScalarCompactFunctions();

// Defined where TF_GC_X86_64.
const CompactFunctions& Avx2CompactFunctions();
const CompactFunctions& Avx512CompactFunctions();

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_COMPACT_FUNCTIONS_H_
