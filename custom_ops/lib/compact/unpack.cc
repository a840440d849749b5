// Unpacks messages.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/compact/packed_segment.h"
#include "custom_ops/lib/compact/segments.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

// Too much for the stack of a thread. If this were inlined, compilers would
// look up the address at every use.
__attribute__((noinline)) UnpackWorkspace* ThreadWorkspaces() {
  static thread_local UnpackWorkspace spaces[kTogether];
  return spaces;
}

// Unpacks at most kTogether segments of a codec. False if one is broken.
bool UnpackSegments(const DecodingTable& of_scales, int planes, int count,
                    PackedSegment* const* segments) {
  static const DecodingTable few{ByteTable(kFewChance)};
  static const DecodingTable some{ByteTable(kSomeChance)};
  const auto decode = [&](auto rows_of) {
    CodedRows* rows[kTogether];
    for (int i = 0; i < count; ++i) rows[i] = rows_of(segments[i]);
    return ActiveCompactFunctions().decode(count, rows);
  };
  const auto all = [&](auto what) {
    return std::all_of(segments, segments + count, what);
  };
  using Segment = PackedSegment;
  if (!decode([&](Segment* one) { return one->HighBytes(of_scales); }) ||
      !all([](Segment* one) { return one->Order(); })) {
    return false;
  }
  for (int plane = 0; plane < planes; ++plane) {
    if (!decode([&](Segment* one) { return one->Kinds(plane); }) ||
        !all([&](Segment* one) { return one->Count(plane); }) ||
        !decode([&](Segment* one) { return one->Few(few); }) ||
        !decode([&](Segment* one) { return one->Some(some); })) {
      return false;
    }
    for (int i = 0; i < count; ++i) segments[i]->Read(plane);
  }
  return all([](Segment* one) { return one->Join(); });
}

}  // namespace

bool Unpack(Codec codec, const MessageLayout& layout, const uint8_t* compact,
            int64_t size, uint8_t* message, const RunTasks& run) {
  MessageHeader header;
  if (size < static_cast<int64_t>(sizeof header)) return false;
  std::memcpy(&header, compact, sizeof header);
  if (header.magic == kWireMagic) {
    if (size < layout.size) return false;
    std::memcpy(message, compact, layout.size);
    return true;
  }
  const int64_t start = SegmentsStart(layout.blocks);
  // A packed message is smaller. One without any segment is not.
  const int64_t most = std::min(size, layout.size - kMessageAlignment);
  if (header.magic != kCompactMagic || header.blocks != layout.blocks ||
      header.codec != static_cast<uint8_t>(codec) ||
      CompactBytes(start) > most) {
    return false;
  }
  ScaleTable table;
  std::memcpy(&table, compact + kScaleTableOffset, sizeof table);
  if (!AreFrequencies(table.frequencies, kScaleSymbols)) return false;
  const int64_t segments = NumSegments(layout.blocks);
  std::vector<SegmentHeader> headers(segments);
  std::memcpy(headers.data(), compact + kSegmentsOffset,
              headers.size() * sizeof(SegmentHeader));
  std::vector<int64_t> starts(segments);
  int64_t end = start;
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t blocks = BlocksInSegment(layout.blocks, i);
    if (!FitsBlocks(codec, blocks, headers[i])) return false;
    starts[i] = end;
    end += SegmentBytes(codec, blocks, headers[i]);
    if (CompactBytes(end) > most) return false;
  }
  const auto of_scales = std::make_unique<DecodingTable>(table);
  std::atomic<bool> whole = true;
  const int64_t pairs = (segments + kTogether - 1) / kTogether;
  run(pairs, [&](int64_t pair) {
    UnpackWorkspace* const spaces = ThreadWorkspaces();
    std::optional<PackedSegment> memory[kTogether];
    PackedSegment* coded[kTogether];
    int count = 0;
    for (int64_t i = pair * kTogether;
         i < std::min(segments, (pair + 1) * kTogether); ++i) {
      PackedSegment& segment = memory[i % kTogether].emplace(
          SegmentOf(codec, layout, i), headers[i], compact + starts[i], message,
          &spaces[i % kTogether]);
      if (segment.coded()) {
        coded[count++] = &segment;
      } else {
        segment.Copy();
      }
    }
    if (!UnpackSegments(*of_scales, NumPlanes(codec), count, coded)) {
      whole.store(false, std::memory_order_relaxed);
    }
  });
  header.magic = kWireMagic;
  std::memcpy(message, &header, sizeof header);
  std::memset(message + layout.padding_offset, 0,
              layout.size - layout.padding_offset);
  return whole;
}

}  // namespace tf_gc
