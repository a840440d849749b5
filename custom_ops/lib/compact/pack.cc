// Packs segments, and what a message has around them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/compact/processor.h"
#include "custom_ops/lib/compact/segments.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

constexpr int64_t kMapRows = kSegmentBlocks * kMapBytes / kCoderLanes;
constexpr int64_t kScaleRows = kSegmentBlocks / kCoderLanes;

// What packing a segment takes besides its input and output.
struct Workspace {
  SegmentParts parts;
  uint8_t high[kSegmentBlocks];  // bytes of the scales
  uint8_t low[kSegmentBlocks];
  uint16_t words[(2 * kMapRows + kScaleRows + 1) * kRowWords + kStateWords];
};

// Puts zeros after `bytes` bytes up to a multiple of 8. Returns its end.
uint8_t* Pad(uint8_t* start, int64_t bytes) {
  const int64_t padded = RoundUp(bytes, 8);
  std::memset(start + bytes, 0, static_cast<size_t>(padded - bytes));
  return start + padded;
}

uint8_t* Append(const void* from, int64_t bytes, uint8_t* to) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
  return Pad(to, bytes);
}

// Puts zeros after `bytes` bytes up to the end of the last of `rows` rows.
void PadRows(uint8_t* start, int64_t bytes, int64_t rows) {
  std::fill(start + bytes, start + rows * kCoderLanes, uint8_t{0});
}

// Counts the symbols of a part of the blocks.
Tables CountSymbols(Codec codec, const MessageLayout& layout,
                    const uint8_t* message) {
  SymbolCounts counts = {};
  uint32_t scale[kScaleSymbols] = {};
  const uint16_t* const scales =
      HasScales(codec) ? layout.Scales(message, 0) : nullptr;
  ActiveCompactFunctions().count(codec, layout.Codes(message, 0), scales,
                                 layout.blocks, &counts);
  if (scales != nullptr) {
    for (int64_t block = 0; block < layout.blocks; block += kSampledBlocks) {
      ++scale[scales[block] >> 8 & (kScaleSymbols - 1)];
    }
  }
  Tables tables;
  Normalize(counts.map, kMapSymbols, tables.map);
  Normalize(scale, kScaleSymbols, tables.scale);
  tables.chance = HasRareBits(codec) ? ChanceOf(counts.ones, counts.rare) : 0;
  return tables;
}

struct Coder {
  CodingTable map;
  CodingTable scale;
  CodingTable rare;

  explicit Coder(const Tables& tables)
      : map(tables.map, kMapSymbols),
        scale(tables.scale, kScaleSymbols),
        rare(RareTable(tables.chance).frequencies, kRareSymbols) {}
};

// Writes a segment as it is in the message.
SegmentHeader CopySegment(const Blocks& blocks, const uint8_t* codes,
                          const uint8_t* scales, uint8_t* to) {
  std::memcpy(to, codes, static_cast<size_t>(blocks.code_bytes));
  if (blocks.scale_bytes > 0) {
    std::memcpy(to + blocks.code_bytes, scales,
                static_cast<size_t>(blocks.scale_bytes));
  }
  Pad(to, blocks.code_bytes + blocks.scale_bytes);
  return {};
}

// Takes scales apart. False if one is below zero, or is not zero though its
// high byte is.
bool SplitScales(const uint8_t* scales, int64_t count, uint8_t* low,
                 uint8_t* high) {
  uint8_t all = 0;
  for (int64_t i = 0; i < count; ++i) {
    low[i] = scales[2 * i];
    high[i] = scales[2 * i + 1];
    all |= high[i];
  }
  if (all >= kScaleSymbols) return false;
  if (CountFilled(high, count) == count) return true;
  int64_t filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!IsFilled(high[i])) {
      if (low[i] != 0) return false;
      continue;
    }
    low[filled++] = low[i];
  }
  return true;
}

// Writes a segment, which takes at most PlainBytes() bytes.
SegmentHeader PackSegment(const Coder& coder, const Blocks& blocks,
                          const uint8_t* codes, const uint8_t* scales,
                          Workspace* space, uint8_t* to) {
  SegmentHeader header = {};
  SegmentParts& parts = space->parts;
  uint8_t* const high = space->high;
  const bool scaled = blocks.scale_bytes > 0;
  const auto& functions = ActiveCompactFunctions();
  if (!scaled) std::fill_n(high, blocks.count, kHighByteOfNone);
  if ((scaled && !SplitScales(scales, blocks.count, space->low, high)) ||
      !functions.split(blocks.codec, codes, high, blocks.count, &parts,
                       &header)) {
    return CopySegment(blocks, codes, scales, to);
  }
  const SegmentLayout rows = LayoutOf(blocks.codec, blocks.count, header);
  uint32_t states[kCoderLanes];
  std::fill_n(states, kCoderLanes, kLowestState);
  uint16_t* words = space->words;
  if (rows.rare_rows > 0) {
    PadRows(parts.rare, BytesOfBits(header.rare), rows.rare_rows);
    words =
        functions.code(coder.rare, parts.rare, rows.rare_rows, states, words);
  }
  PadRows(parts.map, header.filled * kMapBytes, rows.map_rows);
  words = functions.code(coder.map, parts.map, rows.map_rows, states, words);
  if (scaled) {
    PadRows(high, blocks.count, rows.scale_rows);
    words = functions.code(coder.scale, high, rows.scale_rows, states, words);
  }
  std::memcpy(words, states, sizeof states);
  header.words = static_cast<uint32_t>(words - space->words + kStateWords);

  const SegmentLayout layout = LayoutOf(blocks.codec, blocks.count, header);
  if (layout.size >= PlainBytes(blocks.codec, blocks.count)) {
    return CopySegment(blocks, codes, scales, to);
  }
  to = Append(space->words, 2 * int64_t{header.words}, to);
  if (scaled) to = Append(space->low, header.filled, to);
  const int64_t bits = BytesOfBits(header.nonzeros);
  to = Append(parts.signs, bits, to);
  for (int i = 0; i + 1 < MagnitudeBits(blocks.codec); ++i) {
    to = Append(parts.planes[i], bits, to);
  }
  return header;
}

int64_t CopyMessage(const MessageLayout& layout, const uint8_t* message,
                    uint8_t* compact) {
  std::memcpy(compact, message, static_cast<size_t>(layout.size));
  return layout.size;
}

}  // namespace

int64_t PackCapacity(Codec codec, const MessageLayout& layout) {
  const int64_t full = layout.blocks / kSegmentBlocks;
  const int64_t size = SegmentsStart(layout.blocks) +
                       full * PlainBytes(codec, kSegmentBlocks) +
                       PlainBytes(codec, layout.blocks % kSegmentBlocks);
  return std::max(CompactBytes(size), layout.size);
}

int64_t Pack(Codec codec, const MessageLayout& layout, const uint8_t* message,
             uint8_t* compact, const RunTasks& run) {
  const int64_t segments = NumSegments(layout.blocks);
  const int64_t start = SegmentsStart(layout.blocks);
  if (CompactBytes(start) >= layout.size) {
    return CopyMessage(layout, message, compact);
  }
  const Tables tables = CountSymbols(codec, layout, message);
  const Coder coder(tables);
  // Each segment goes where it would be if none got smaller.
  const int64_t stride = PlainBytes(codec, kSegmentBlocks);
  std::vector<SegmentHeader> headers(static_cast<size_t>(segments));
  run(segments, [&](int64_t i) {
    const SegmentOf segment(codec, layout, i);
    // New memory for each segment would take as long as all the rest.
    static thread_local Workspace space;
    headers[static_cast<size_t>(i)] = PackSegment(
        coder, segment.blocks, message + segment.codes_offset,
        message + segment.scales_offset, &space, compact + start + i * stride);
  });

  int64_t end = start;
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t size = SegmentBytes(codec, BlocksInSegment(layout.blocks, i),
                                      headers[static_cast<size_t>(i)]);
    std::memmove(compact + end, compact + start + i * stride,
                 static_cast<size_t>(size));
    end += size;
  }
  const int64_t bytes = CompactBytes(end);
  if (bytes >= layout.size) return CopyMessage(layout, message, compact);
  std::memset(compact + end, 0, static_cast<size_t>(bytes - end));

  MessageHeader header;
  std::memcpy(&header, message, sizeof header);
  header.magic = kCompactMagic;
  std::memcpy(compact, &header, sizeof header);
  std::memcpy(compact + kMapTableOffset, &tables, sizeof tables);
  std::memcpy(compact + kSegmentsOffset, headers.data(),
              headers.size() * sizeof(SegmentHeader));
  return bytes;
}

}  // namespace tf_gc
