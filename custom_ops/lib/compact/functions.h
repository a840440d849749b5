// The functions that do the work of compact.h, a table for each instruction
// set. Internal to the library.

#pragma once

#include <cstdint>

#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {

// A bit for each code of a segment, and what a writer of 64 bits may write
// beyond them.
constexpr int64_t kStreamBytes = kSegmentRuns * kRun / 8 + 32;

// A plane of a segment before words are made of it, as in compact_wire.h.
struct PlaneParts {
  uint8_t kinds[kSegmentRuns];
  uint32_t counts[kKinds];
  int64_t bits[kClasses];  // without class kEqual's
  // Bits of class kEqual are never sent: to write them, too, saves a branch.
  uint8_t classes[kClasses][kStreamBytes];
};

struct SegmentParts {
  PlaneParts planes[kMostPlanes];
};

// The blocks of a segment that are not empty, and those that are.
struct BlockLists {
  uint16_t filled[kSegmentBlocks];
  uint16_t empty[kSegmentBlocks];
  int64_t count;  // of those that are not empty
};

// The blocks of a segment in the order of its runs.
struct RunOrder {
  uint16_t sorted[kSegmentBlocks];  // what `blocks` may point to
  const uint16_t* blocks;
  int64_t count;
  bool tiled;     // as far as they fill tiles
  int tile_rows;  // kRun blocks each: 2 if runs are paired
};

// Words that a row may add, and that may be written beyond its last one.
constexpr int64_t kRowWords = kCoderLanes;

// Segments that are decoded in turns, a row of each: a lane waits for its
// lookup most of the time, and one segment has too few lanes to make use of
// that time.
constexpr int kTogether = 2;

// Rows of a segment that are to be decoded. Decoding moves `end`, `rows` and
// `bytes` on.
struct CodedRows {
  const uint16_t* first;  // word
  const uint16_t* end;    // of the words that are left
  uint32_t states[kCoderLanes];
  int64_t rows;
  uint8_t* bytes;  // where the rows go
  const DecodingTable* table;
};

struct CompactFunctions {
  // Lists the blocks of a segment, by the high bytes of their scales, of which
  // up to 8 more are read.
  void (*list_blocks)(const uint8_t* high, int64_t blocks, BlockLists* list);
  // Keeps the low bytes of blocks that are not empty, of which up to 8 more are
  // read. False if another one is not zero.
  bool (*pick_low)(const uint8_t* high, int64_t blocks, uint8_t* low);
  // Writes scales, given such low bytes, of which up to 8 more are read.
  void (*put_low)(const uint8_t* high, int64_t blocks, const uint8_t* low,
                  uint8_t* scales);
  // The sum of RunCost() over the runs of a tile, less its sum over the halves
  // of its blocks. `codes` are the segment's codes, `blocks` the kRun blocks.
  int64_t (*cost)(Codec codec, const uint8_t* codes, const uint16_t* blocks);
  // Takes the codes of a segment apart. False if a code says "not finite".
  bool (*split)(Codec codec, const uint8_t* codes, const RunOrder& order,
                SegmentParts* parts);
  // Counts the bits of each class of a plane, kClasses numbers, given how many
  // bits each run has in it.
  void (*count)(const uint8_t* kinds, const uint8_t* sizes, int64_t runs,
                int64_t* bits);
  // Reads the map. `classes` are the bits of each class but kEqual, as many as
  // `count` says.
  void (*read_map)(const uint8_t* kinds, const uint8_t* const* classes,
                   int64_t runs, uint64_t* words);
  // Reads another plane and puts its bits where `masks` says, each of which has
  // as many ones as `sizes` says. Up to 8 bytes after the bits are read.
  void (*read)(const uint8_t* kinds, const uint64_t* masks,
               const uint8_t* sizes, const uint8_t* const* classes,
               int64_t runs, uint64_t* words);
  // Counts the ones of each word.
  void (*count_ones)(const uint64_t* words, int64_t runs, uint8_t* sizes);
  // Puts the codes of a segment together, of the blocks that are in `order`.
  void (*join)(Codec codec, const uint64_t (*planes)[kSegmentRuns],
               const RunOrder& order, uint8_t* codes);
  // Codes rows of bytes, from the last to the first. Returns where the next
  // word goes; there is room for kRowWords more than that.
  uint16_t* (*code)(const CodingTable& table, const uint8_t* bytes,
                    int64_t rows, uint32_t* states, uint16_t* words);
  // Decodes the rows of `count` segments, at most kTogether, from the first row
  // to the last. False if there are too few words.
  bool (*decode)(int count, CodedRows* const* segments);
};

// The functions of ActiveTarget(). Those that pick out bits are the scalar ones
// where the processor takes many cycles for it.
const CompactFunctions& ActiveCompactFunctions();

const CompactFunctions& ScalarCompactFunctions();

// Defined where TF_GC_X86_64.
const CompactFunctions& Avx2CompactFunctions();
const CompactFunctions& Avx512CompactFunctions();
// Defined where TF_GC_NEON.
const CompactFunctions& NeonCompactFunctions();

}  // namespace tf_gc
