// Shared by packing and unpacking a message. Internal to the library.

#pragma once

#include <cstdint>
#include <numeric>

#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {

// The blocks of a segment in a packed message.
struct Blocks {
  Codec codec;
  int64_t count;
  int64_t code_bytes;   // of all
  int64_t scale_bytes;  // of all, 0 if there are none

  Blocks(Codec c, int64_t blocks)
      : codec(c),
        count(blocks),
        code_bytes(blocks * CodeBytes(c)),
        scale_bytes(HasScales(c) ? blocks * kScaleBytes : 0) {}
};

// Where the blocks of a segment are in a message.
struct SegmentOf {
  Blocks blocks;
  int64_t codes_offset;
  int64_t scales_offset;

  SegmentOf(Codec codec, const MessageLayout& layout, int64_t segment)
      : blocks(codec, BlocksInSegment(layout.blocks, segment)),
        codes_offset(layout.codes_offset +
                     segment * kSegmentBlocks * layout.code_bytes),
        scales_offset(layout.scales_offset +
                      segment * kSegmentBlocks * kScaleBytes) {}
};

// The frequencies of the high bytes of a message's scales, as on the wire.
struct ScaleTable {
  uint16_t frequencies[kScaleSymbols];
};
static_assert(sizeof(ScaleTable) == kSegmentsOffset - kScaleTableOffset,
              "the table is as on the wire");

// Sorts blocks by a byte of their scales; those with the same one stay in their
// order.
inline void SortByByte(const uint16_t* from, int64_t blocks,
                       const uint16_t* scales, int byte, uint16_t* to) {
  const auto byte_of = [&](int64_t i) {
    return scales[from[i]] >> 8 * byte & 0xff;
  };
  uint16_t ends[257] = {};
  for (int64_t i = 0; i < blocks; ++i) ++ends[byte_of(i) + 1];
  for (int i = 1; i < 257; ++i) {
    ends[i] = static_cast<uint16_t>(ends[i] + ends[i - 1]);
  }
  for (int64_t i = 0; i < blocks; ++i) to[ends[byte_of(i)]++] = from[i];
}

// Puts `blocks` blocks of a segment into the order that a period gives them.
// `scales` are theirs; null if they are not to be sorted by them.
inline void SetOrder(const BlockLists& list, const uint16_t* scales,
                     int64_t blocks, int64_t period, bool paired,
                     RunOrder* order) {
  order->blocks = period == 0 ? list.filled : order->sorted;
  order->count = period == 0 ? list.count : blocks;
  order->tiled = period != 0;
  order->tile_rows = paired ? 2 : 1;
  int64_t count = 0;
  if (period == 0) return;
  uint16_t next[kSegmentBlocks];  // where the next block of a remainder goes
  for (int64_t rest = 0; rest < period && rest < blocks; ++rest) {
    next[rest] = static_cast<uint16_t>(count);
    for (int64_t i = rest; i < blocks; i += period) {
      order->sorted[count++] = static_cast<uint16_t>(i);
    }
  }
  if (scales == nullptr) return;
  uint16_t by_low[kSegmentBlocks];
  uint16_t by_scale[kSegmentBlocks];
  std::iota(by_scale, by_scale + blocks, uint16_t{0});
  SortByByte(by_scale, blocks, scales, 0, by_low);
  SortByByte(by_low, blocks, scales, 1, by_scale);
  for (int64_t i = 0; i < blocks; ++i) {
    order->sorted[next[by_scale[i] % static_cast<uint32_t>(period)]++] =
        by_scale[i];
  }
}

}  // namespace tf_gc
