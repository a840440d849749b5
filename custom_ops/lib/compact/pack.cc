// Packs segments, and what a message has around them.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/compact/segments.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

constexpr int64_t kScaleRows = kSegmentBlocks / kCoderLanes;
constexpr int64_t kKindRows = kSegmentRuns / kCoderLanes;
// Of the bits of both classes together, each of which may end within a row.
constexpr int64_t kBitRows = kSegmentRuns * kRun / (8 * kCoderLanes) + 2;
constexpr int64_t kMostRows = kScaleRows + kMostPlanes * (kKindRows + kBitRows);

// The memory that packing a segment takes besides its input and output.
struct Workspace {
  SegmentParts parts;
  BlockLists list;
  RunOrder order;
  uint8_t high[kSegmentBlocks];  // bytes of the scales
  uint8_t low[kSegmentBlocks];
  uint16_t words[(kMostRows + 1) * kRowWords + kStateWords];
};

// New memory for each segment would take as long as all the rest. If this were
// inlined, compilers would look up the address at every use.
__attribute__((noinline)) Workspace* ThreadWorkspace() {
  static thread_local Workspace space;
  return &space;
}

// Puts zeros after `bytes` bytes up to a multiple of 8. Returns its end.
uint8_t* Pad(uint8_t* start, int64_t bytes) {
  const int64_t padded = RoundUp(bytes, 8);
  std::memset(start + bytes, 0, padded - bytes);
  return start + padded;
}

uint8_t* Append(const void* from, int64_t bytes, uint8_t* to) {
  std::memcpy(to, from, bytes);
  return Pad(to, bytes);
}

// Counts the high bytes of the scales of a part of the blocks.
ScaleTable CountScales(Codec codec, const MessageLayout& layout,
                       const uint8_t* message) {
  uint32_t counts[kScaleSymbols] = {};
  if (HasScales(codec)) {
    const uint16_t* const scales = layout.Scales(message, 0);
    for (int64_t block = 0; block < layout.blocks; block += kSampledBlocks) {
      ++counts[scales[block] >> 8 & (kScaleSymbols - 1)];
    }
  }
  ScaleTable table;
  Normalize(counts, kScaleSymbols, table.frequencies);
  return table;
}

// Codes the parts of a segment into words, the last part first.
class WordWriter {
 public:
  explicit WordWriter(uint16_t* words) : first_(words), end_(words) {
    std::fill_n(states_, kCoderLanes, kLowestState);
  }

  // Puts zeros after the bytes, up to the end of a row.
  void Code(const CodingTable& table, uint8_t* bytes, int64_t count) {
    const int64_t rows = RoundUp(count, kCoderLanes) / kCoderLanes;
    std::fill(bytes + count, bytes + rows * kCoderLanes, uint8_t{0});
    end_ = ActiveCompactFunctions().code(table, bytes, rows, states_, end_);
  }

  // Returns the number of words.
  int64_t Finish() {
    std::memcpy(end_, states_, sizeof states_);
    return end_ - first_ + kStateWords;
  }

 private:
  uint16_t* const first_;
  uint16_t* end_;
  uint32_t states_[kCoderLanes];
};

// Writes a segment as it is in the message.
SegmentHeader CopySegment(const Blocks& blocks, const uint8_t* codes,
                          const uint8_t* scales, uint8_t* to) {
  std::memcpy(to, codes, blocks.code_bytes);
  if (blocks.scale_bytes > 0) {
    std::memcpy(to + blocks.code_bytes, scales, blocks.scale_bytes);
  }
  Pad(to, blocks.code_bytes + blocks.scale_bytes);
  return {};
}

// Takes scales apart, and lists the blocks that are filled. False if a scale is
// below zero, or is not zero though its high byte is.
bool SplitScales(const uint8_t* scales, int64_t count, Workspace* space) {
  uint8_t* const low = space->low;
  uint8_t* const high = space->high;
  uint8_t all = 0;
  for (int64_t i = 0; i < count; ++i) {
    low[i] = scales[2 * i];
    high[i] = scales[2 * i + 1];
    all |= high[i];
  }
  const auto& functions = ActiveCompactFunctions();
  functions.list_blocks(high, count, &space->list);
  return all < kScaleSymbols && functions.pick_low(high, count, low);
}

// False if one of these blocks has a code that is not kCodeZero.
bool AreEmpty(Codec codec, const uint8_t* codes, const uint16_t* blocks,
              int64_t count) {
  const int64_t words = CodeBytes(codec) / kWordBytes;
  return std::all_of(blocks, blocks + count, [&](uint16_t block) {
    const WireWord* const of_block =
        reinterpret_cast<const WireWord*>(codes) + block * words;
    WireWord any = 0;
    for (int64_t i = 0; i < words; ++i) any |= of_block[i];
    return any == 0;
  });
}

// Chooses a period as frequencies.h says. `order` is overwritten.
int64_t ChoosePeriod(const Blocks& blocks, const uint8_t* codes,
                     const BlockLists& list, const Periods& periods,
                     RunOrder* order) {
  int64_t chosen = 0;
  int64_t least = 0;
  for (int i = 0; i < periods.count; ++i) {
    SetOrder(list, nullptr, blocks.count, periods.values[i], false, order);
    int64_t sum = 0;
    for (int64_t tile = 0; (tile + 1) * kRun <= order->count;
         tile += kSampledTiles) {
      sum += ActiveCompactFunctions().cost(blocks.codec, codes,
                                           order->blocks + tile * kRun);
    }
    if (sum < least) {
      least = sum;
      chosen = periods.values[i];
    }
  }
  return chosen;
}

// Writes how often the runs of a plane are of each kind.
void WriteCounts(const uint32_t* counts, uint8_t* to) {
  const uint32_t most = *std::max_element(counts, counts + kKinds);
  for (int i = 0; i < kKinds; ++i) to[i] = CountByte(counts[i], most);
}

// Writes a segment, which takes at most PlainBytes() bytes.
SegmentHeader PackSegment(const CodingTable& of_scales, const Blocks& blocks,
                          const Periods& periods, const uint8_t* codes,
                          const uint8_t* scales, Workspace* space,
                          uint8_t* to) {
  static const CodingTable few{ByteTable(kFewChance)};
  static const CodingTable some{ByteTable(kSomeChance)};
  SegmentParts& parts = space->parts;
  RunOrder& order = space->order;
  uint8_t* const high = space->high;
  const bool scaled = blocks.scale_bytes > 0;
  const auto& functions = ActiveCompactFunctions();
  if (!scaled) {
    std::fill_n(high, blocks.count, kHighByteOfNone);
    functions.list_blocks(high, blocks.count, &space->list);
  } else if (!SplitScales(scales, blocks.count, space)) {
    return CopySegment(blocks, codes, scales, to);
  }
  SegmentHeader header = {};
  const int64_t filled = space->list.count;
  header.filled = static_cast<uint32_t>(filled);
  if (!AreEmpty(blocks.codec, codes, space->list.empty,
                blocks.count - filled)) {
    return CopySegment(blocks, codes, scales, to);
  }
  const int64_t period =
      ChoosePeriod(blocks, codes, space->list, periods, &order);
  const bool paired = IsPaired(blocks.count, period);
  header.period = static_cast<uint16_t>(period);
  header.paired = paired ? 1 : 0;
  SetOrder(space->list,
           scaled ? reinterpret_cast<const uint16_t*>(scales) : nullptr,
           blocks.count, period, paired, &order);
  if (!functions.split(blocks.codec, codes, order, &parts)) {
    return CopySegment(blocks, codes, scales, to);
  }

  const int planes = NumPlanes(blocks.codec);
  const int64_t kinds = order.count * kHalves / order.tile_rows;
  uint8_t counts[kMostPlanes * kKinds];
  int64_t mixed = 0;
  WordWriter words(space->words);
  for (int i = planes - 1; i >= 0; --i) {
    PlaneParts& plane = parts.planes[i];
    words.Code(some, plane.classes[kSome], BytesOf(plane.bits[kSome]));
    words.Code(few, plane.classes[kFew], BytesOf(plane.bits[kFew]));
    uint8_t* const mine = counts + i * kKinds;
    WriteCounts(plane.counts, mine);
    if (OnlyKind(mine) == kKinds) {
      words.Code(CodingTable(KindTable(mine)), plane.kinds, kinds);
    }
    mixed += BytesOfBits(plane.bits[kMixed]);
  }
  if (scaled) words.Code(of_scales, high, blocks.count);
  header.words = static_cast<uint32_t>(words.Finish());
  header.mixed = static_cast<uint32_t>(mixed / 8);

  const SegmentLayout layout = LayoutOf(blocks.codec, blocks.count, header);
  if (layout.size >= PlainBytes(blocks.codec, blocks.count)) {
    return CopySegment(blocks, codes, scales, to);
  }
  to = Append(space->words, 2 * int64_t{header.words}, to);
  if (scaled) to = Append(space->low, filled, to);
  to = Append(counts, planes * kKinds, to);
  for (int i = 0; i < planes; ++i) {
    const PlaneParts& plane = parts.planes[i];
    to = Append(plane.classes[kMixed], BytesOfBits(plane.bits[kMixed]), to);
  }
  return header;
}

// A segment of the message that is being packed.
struct PlacedSegment {
  SegmentHeader header = {};
  int64_t start = 0;
  std::atomic<int64_t> end = 0;  // 0 as long as it is not known
};

int64_t CopyMessage(const MessageLayout& layout, const uint8_t* message,
                    uint8_t* compact) {
  std::memcpy(compact, message, layout.size);
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

int64_t Pack(Codec codec, const MessageLayout& layout, const Periods& periods,
             const uint8_t* message, uint8_t* compact, const RunTasks& run) {
  const int64_t segments = NumSegments(layout.blocks);
  const int64_t start = SegmentsStart(layout.blocks);
  if (CompactBytes(start) >= layout.size) {
    return CopyMessage(layout, message, compact);
  }
  const ScaleTable table = CountScales(codec, layout, message);
  const CodingTable of_scales(table);
  // Each segment goes behind the one before if that is there, or where it would
  // be if none got smaller: never further back, so that it is in no other's
  // way.
  const int64_t stride = PlainBytes(codec, kSegmentBlocks);
  std::vector<PlacedSegment> placed(segments);
  run(segments, [&](int64_t i) {
    const SegmentOf segment(codec, layout, i);
    PlacedSegment& mine = placed[i];
    const int64_t before = i == 0 ? 0 : (&mine)[-1].end.load();
    mine.start = before == 0 ? start + i * stride : before;
    mine.header = PackSegment(of_scales, segment.blocks, periods,
                              message + segment.codes_offset,
                              message + segment.scales_offset,
                              ThreadWorkspace(), compact + mine.start);
    mine.end.store(mine.start +
                   SegmentBytes(codec, segment.blocks.count, mine.header));
  });

  int64_t end = start;
  for (const PlacedSegment& segment : placed) {
    const int64_t size = segment.end - segment.start;
    if (segment.start != end) {
      std::memmove(compact + end, compact + segment.start, size);
    }
    end += size;
  }
  const int64_t bytes = CompactBytes(end);
  if (bytes >= layout.size) return CopyMessage(layout, message, compact);
  std::memset(compact + end, 0, bytes - end);

  MessageHeader header;
  std::memcpy(&header, message, sizeof header);
  header.magic = kCompactMagic;
  std::memcpy(compact, &header, sizeof header);
  std::memcpy(compact + kScaleTableOffset, &table, sizeof table);
  uint8_t* to = compact + kSegmentsOffset;
  for (const PlacedSegment& segment : placed) {
    std::memcpy(to, &segment.header, sizeof segment.header);
    to += sizeof segment.header;
  }
  return bytes;
}

}  // namespace tf_gc
