// Unpacks messages.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/compact/processor.h"
#include "custom_ops/lib/compact/segments.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

struct Decoder {
  DecodingTable map;
  DecodingTable scale;
  DecodingTable rare;

  explicit Decoder(const Tables& tables)
      : map(tables.map, kMapSymbols),
        scale(tables.scale, kScaleSymbols),
        rare(RareTable(tables.chance).frequencies, kRareSymbols) {}
};

// A segment that is being unpacked.
class PackedSegment {
 public:
  // `from` has the bytes that the header says, and up to 8 bytes more are read.
  PackedSegment(const SegmentOf& segment, const SegmentHeader& header,
                const uint8_t* from, uint8_t* message)
      : blocks_(segment.blocks),
        header_(header),
        layout_(LayoutOf(blocks_.codec, blocks_.count, header)),
        from_(from),
        codes_(message + segment.codes_offset),
        scales_(message + segment.scales_offset) {}

  bool coded() const { return header_.words != 0; }

  // Of a segment that is not coded.
  void Copy() const {
    std::memcpy(codes_, from_, static_cast<size_t>(blocks_.code_bytes));
    if (scaled()) {
      std::memcpy(scales_, from_ + blocks_.code_bytes,
                  static_cast<size_t>(blocks_.scale_bytes));
    }
  }

  // Returns the rows of the high bytes of scales.
  CodedRows* HighBytes() {
    rows_.first = reinterpret_cast<const uint16_t*>(from_);
    rows_.end = rows_.first + header_.words - kStateWords;
    std::memcpy(rows_.states, rows_.end, sizeof rows_.states);
    rows_.rows = layout_.scale_rows;
    rows_.bytes = high_;
    return &rows_;
  }

  // Returns the rows of the maps, once the high bytes are decoded.
  CodedRows* Maps() {
    rows_.rows = layout_.map_rows;
    rows_.bytes = map_;
    return &rows_;
  }

  // Returns the rows of the rare bits, once the maps are decoded.
  CodedRows* Rare() {
    rows_.rows = layout_.rare_rows;
    rows_.bytes = rare_;
    return &rows_;
  }

  // Puts together what was decoded. False if it is broken.
  bool Join() {
    const auto& functions = ActiveCompactFunctions();
    if (!scaled()) std::fill_n(high_, blocks_.count, kHighByteOfNone);
    if (!IsAllDecoded() ||
        CountFilled(high_, blocks_.count) != header_.filled ||
        functions.count_either(map_, map_, map_bytes()) != header_.nonzeros) {
      return false;
    }
    const int64_t bits = BytesOfBits(header_.nonzeros);
    const int planes = MagnitudeBits(blocks_.codec) - 1;
    const uint8_t* const first_plane = from_ + layout_.planes_offset;
    const SegmentBits parts = {
        map_,
        from_ + layout_.signs_offset,
        {first_plane, first_plane + (planes > 1 ? bits : 0)},
        rare_};
    const int64_t common =
        planes == 0 ? 0
                    : functions.count_either(parts.planes[0],
                                             parts.planes[planes - 1], bits);
    if (common != header_.rare) return false;
    functions.join(blocks_.codec, parts, high_, blocks_.count, codes_);
    if (scaled()) JoinScales();
    return true;
  }

 private:
  bool scaled() const { return blocks_.scale_bytes > 0; }
  int64_t map_bytes() const { return header_.filled * kMapBytes; }

  bool IsAllDecoded() const {
    return rows_.end == rows_.first &&
           std::all_of(rows_.states, rows_.states + kCoderLanes,
                       [](uint32_t state) { return state == kLowestState; });
  }

  void JoinScales() const {
    const uint8_t* const low = from_ + layout_.scales_offset;
    if (header_.filled == blocks_.count) {
      for (int64_t i = 0; i < blocks_.count; ++i) {
        scales_[2 * i] = low[i];
        scales_[2 * i + 1] = high_[i];
      }
      return;
    }
    int64_t filled = 0;
    for (int64_t i = 0; i < blocks_.count; ++i) {
      scales_[2 * i] = IsFilled(high_[i]) ? low[filled++] : 0;
      scales_[2 * i + 1] = high_[i];
    }
  }

  const Blocks blocks_;
  const SegmentHeader header_;
  const SegmentLayout layout_;
  const uint8_t* const from_;
  uint8_t* const codes_;
  uint8_t* const scales_;
  CodedRows rows_;
  uint8_t map_[kSegmentBlocks * kMapBytes];
  uint8_t rare_[kStreamBytes];
  uint8_t high_[kSegmentBlocks];
};

// Unpacks at most kTogether segments. False if one is broken.
bool UnpackSegments(const Decoder& decoder, int count,
                    PackedSegment* const* segments) {
  const auto& decode = ActiveCompactFunctions().decode;
  CodedRows* rows[kTogether];
  for (int i = 0; i < count; ++i) rows[i] = segments[i]->HighBytes();
  if (!decode(decoder.scale, count, rows)) return false;
  for (int i = 0; i < count; ++i) rows[i] = segments[i]->Maps();
  if (!decode(decoder.map, count, rows)) return false;
  for (int i = 0; i < count; ++i) rows[i] = segments[i]->Rare();
  return decode(decoder.rare, count, rows) &&
         std::all_of(segments, segments + count,
                     [](PackedSegment* one) { return one->Join(); });
}

}  // namespace

bool Unpack(Codec codec, const MessageLayout& layout, const uint8_t* compact,
            int64_t size, uint8_t* message, const RunTasks& run) {
  MessageHeader header;
  if (size < static_cast<int64_t>(sizeof header)) return false;
  std::memcpy(&header, compact, sizeof header);
  if (header.magic == kWireMagic) {
    if (size < layout.size) return false;
    std::memcpy(message, compact, static_cast<size_t>(layout.size));
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
  Tables tables;
  std::memcpy(&tables, compact + kMapTableOffset, sizeof tables);
  if (!IsChance(codec, tables.chance) ||
      !AreFrequencies(tables.map, kMapSymbols) ||
      !AreFrequencies(tables.scale, kScaleSymbols)) {
    return false;
  }
  const int64_t segments = NumSegments(layout.blocks);
  std::vector<SegmentHeader> headers(static_cast<size_t>(segments));
  std::memcpy(headers.data(), compact + kSegmentsOffset,
              headers.size() * sizeof(SegmentHeader));
  std::vector<int64_t> starts(static_cast<size_t>(segments));
  int64_t end = start;
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t blocks = BlocksInSegment(layout.blocks, i);
    const size_t n = static_cast<size_t>(i);
    if (!FitsBlocks(codec, blocks, headers[n])) return false;
    starts[n] = end;
    end += SegmentBytes(codec, blocks, headers[n]);
    if (CompactBytes(end) > most) return false;
  }
  const auto decoder = std::make_unique<Decoder>(tables);
  std::atomic<bool> whole = true;
  const int64_t pairs = (segments + kTogether - 1) / kTogether;
  run(pairs, [&](int64_t pair) {
    std::optional<PackedSegment> memory[kTogether];
    PackedSegment* coded[kTogether];
    int count = 0;
    for (int64_t i = pair * kTogether;
         i < std::min(segments, (pair + 1) * kTogether); ++i) {
      const size_t n = static_cast<size_t>(i);
      PackedSegment& segment =
          memory[i % kTogether].emplace(SegmentOf(codec, layout, i), headers[n],
                                        compact + starts[n], message);
      if (segment.coded()) {
        coded[count++] = &segment;
      } else {
        segment.Copy();
      }
    }
    if (!UnpackSegments(*decoder, count, coded)) {
      whole.store(false, std::memory_order_relaxed);
    }
  });
  header.magic = kWireMagic;
  std::memcpy(message, &header, sizeof header);
  std::memset(message + layout.padding_offset, 0,
              static_cast<size_t>(layout.size - layout.padding_offset));
  return whole;
}

}  // namespace tf_gc
