// Unpacks messages.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
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

DecodingTable DecodingTableOf(const ByteTable& table) {
  return DecodingTable(table.frequencies, kByteSymbols);
}

// What to decode with, other than the kinds.
struct Decoder {
  DecodingTable few = DecodingTableOf(ByteTable(kFewChance));
  DecodingTable some = DecodingTableOf(ByteTable(kSomeChance));
  DecodingTable scales;

  explicit Decoder(const ScaleTable& table)
      : scales(table.frequencies, kScaleSymbols) {}
};

// What unpacking a segment takes besides its input and output.
struct Workspace {
  CodedRows rows;
  RunOrder order;
  uint8_t high[kSegmentBlocks];
  uint8_t kinds[kSegmentRuns];
  uint8_t few[kStreamBytes];
  uint8_t some[kStreamBytes];
  uint64_t planes[kMostPlanes][kSegmentRuns];
  uint64_t common[kSegmentRuns];  // of several planes
  uint8_t sizes[kSegmentRuns];    // of the runs in the next plane
  std::optional<DecodingTable> kind_table;
};

// A segment that is being unpacked.
class PackedSegment {
 public:
  // `from` has the bytes that the header says, and up to 8 bytes more are read.
  PackedSegment(const SegmentOf& segment, const SegmentHeader& header,
                const uint8_t* from, uint8_t* message, Workspace* space)
      : blocks_(segment.blocks),
        header_(header),
        layout_(LayoutOf(blocks_.codec, blocks_.count, header)),
        from_(from),
        codes_(message + segment.codes_offset),
        scales_(message + segment.scales_offset),
        mixed_(from + layout_.mixed_offset),
        space_(space) {}

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
  CodedRows* HighBytes(const DecodingTable& table) {
    CodedRows& rows = space_->rows;
    rows.first = reinterpret_cast<const uint16_t*>(from_);
    rows.end = rows.first + header_.words - kStateWords;
    std::memcpy(rows.states, rows.end, sizeof rows.states);
    return Rows(&table, layout_.scale_rows, space_->high);
  }

  // Puts the blocks in order, once the high bytes are decoded. False if they do
  // not fit the header.
  bool Order() {
    uint8_t* const high = space_->high;
    if (!scaled()) std::fill_n(high, blocks_.count, kHighByteOfNone);
    if (CountFilled(high, blocks_.count) != header_.filled) return false;
    SetOrder(high, blocks_.count, header_.period, &space_->order);
    return true;
  }

  // Returns the rows of a plane's kinds.
  CodedRows* Kinds(int plane) {
    const uint8_t* const counts =
        from_ + layout_.counts_offset + plane * kKinds;
    only_kind_ = OnlyKind(counts);
    if (only_kind_ < kKinds) {
      std::fill_n(space_->kinds, layout_.runs, only_kind_);
      return Rows(nullptr, 0, space_->kinds);
    }
    space_->kind_table.emplace(KindTable(counts).frequencies, kKinds);
    return Rows(&*space_->kind_table, layout_.kind_rows, space_->kinds);
  }

  // Counts the bits of a plane, once its kinds are decoded. False if there are
  // too few that are mixed.
  bool Count(int plane) {
    const auto& functions = ActiveCompactFunctions();
    const auto count_ones = [&](const uint64_t* words) {
      functions.count_ones(words, layout_.runs, space_->sizes);
    };
    if (plane == 0) std::fill_n(space_->sizes, layout_.runs, kRun);
    if (plane == 1) count_ones(space_->planes[0]);
    if (IsRare(plane)) count_ones(common_);
    if (only_kind_ < kKinds) {
      std::fill_n(bits_, kClasses, 0);
      const uint8_t* const sizes = space_->sizes;
      bits_[only_kind_ / 2] =
          std::accumulate(sizes, sizes + layout_.runs, int64_t{0});
      bits_[kEqual] = 0;
    } else {
      functions.count(space_->kinds, space_->sizes, layout_.runs, bits_);
    }
    return BytesOfBits(bits_[kMixed]) <= from_ + layout_.size - mixed_;
  }

  // Return the rows of the bits of a class.
  CodedRows* Few(const DecodingTable& table) {
    return Rows(&table, RowsOfBits(bits_[kFew]), space_->few);
  }
  CodedRows* Some(const DecodingTable& table) {
    return Rows(&table, RowsOfBits(bits_[kSome]), space_->some);
  }

  // Reads a plane, once its bits are decoded.
  void Read(int plane) {
    const uint8_t* const classes[kClasses] = {nullptr, space_->few,
                                              space_->some, mixed_};
    const auto& functions = ActiveCompactFunctions();
    uint64_t* const words = space_->planes[plane];
    const uint64_t* const masks = IsRare(plane) ? common_ : space_->planes[0];
    if (plane == 0) {
      functions.read_map(space_->kinds, classes, layout_.runs, words);
    } else if (IsAlike()) {
      functions.read_alike(masks, space_->sizes, classes[only_kind_ / 2],
                           layout_.runs, words);
    } else {
      functions.read(space_->kinds, masks, space_->sizes, classes, layout_.runs,
                     words);
    }
    mixed_ += BytesOfBits(bits_[kMixed]);
    if (plane == 2) common_ = words;
    if (plane > 2 && !IsRare(plane)) {
      for (int64_t i = 0; i < layout_.runs; ++i) {
        space_->common[i] = words[i] | common_[i];
      }
      common_ = space_->common;
    }
  }

  // Puts together what was decoded. False if it is broken.
  bool Join() {
    if (!IsAllRead()) return false;
    const uint8_t* const high = space_->high;
    if (header_.period == 0 && header_.filled < blocks_.count) {
      const int64_t bytes = CodeBytes(blocks_.codec);
      for (int64_t i = 0; i < blocks_.count; ++i) {
        if (!IsFilled(high[i])) {
          std::memset(codes_ + i * bytes, 0, static_cast<size_t>(bytes));
        }
      }
    }
    ActiveCompactFunctions().join(blocks_.codec, space_->planes, space_->order,
                                  codes_);
    if (scaled()) JoinScales();
    return true;
  }

 private:
  bool scaled() const { return blocks_.scale_bytes > 0; }

  static int64_t RowsOfBits(int64_t bits) {
    return RoundUp(BytesOf(bits), kCoderLanes) / kCoderLanes;
  }

  CodedRows* Rows(const DecodingTable* table, int64_t count, uint8_t* bytes) {
    space_->rows.table = table;
    space_->rows.rows = count;
    space_->rows.bytes = bytes;
    return &space_->rows;
  }

  // Whether the bits of the next plane follow each other as they are.
  bool IsAlike() const {
    return only_kind_ < kKinds && only_kind_ % 2 == 0 &&
           only_kind_ / 2 != kEqual;
  }

  bool IsRare(int plane) const {
    return HasRareBits(blocks_.codec) && plane == NumPlanes(blocks_.codec) - 1;
  }

  bool IsAllRead() const {
    const CodedRows& rows = space_->rows;
    return mixed_ == from_ + layout_.size && rows.end == rows.first &&
           std::all_of(rows.states, rows.states + kCoderLanes,
                       [](uint32_t state) { return state == kLowestState; });
  }

  void JoinScales() const {
    const uint8_t* const low = from_ + layout_.scales_offset;
    const uint8_t* const high = space_->high;
    if (header_.filled == blocks_.count) {
      for (int64_t i = 0; i < blocks_.count; ++i) {
        scales_[2 * i] = low[i];
        scales_[2 * i + 1] = high[i];
      }
      return;
    }
    int64_t filled = 0;
    for (int64_t i = 0; i < blocks_.count; ++i) {
      scales_[2 * i] = IsFilled(high[i]) ? low[filled++] : 0;
      scales_[2 * i + 1] = high[i];
    }
  }

  const Blocks blocks_;
  const SegmentHeader header_;
  const SegmentLayout layout_;
  const uint8_t* const from_;
  uint8_t* const codes_;
  uint8_t* const scales_;
  const uint8_t* mixed_;         // those of the next plane
  int only_kind_ = 0;            // of the next plane
  int64_t bits_[kClasses] = {};  // of the next plane
  // Which magnitudes have a common bit that is 1, of the planes so far: those
  // with a rare bit.
  const uint64_t* common_ = nullptr;
  Workspace* const space_;
};

// Unpacks at most kTogether segments of a codec. False if one is broken.
bool UnpackSegments(const Decoder& decoder, int planes, int count,
                    PackedSegment* const* segments) {
  const auto decode = [&](auto rows_of) {
    CodedRows* rows[kTogether];
    for (int i = 0; i < count; ++i) rows[i] = rows_of(segments[i]);
    return ActiveCompactFunctions().decode(count, rows);
  };
  const auto all = [&](auto what) {
    return std::all_of(segments, segments + count, what);
  };
  using Segment = PackedSegment;
  if (!decode([&](Segment* one) { return one->HighBytes(decoder.scales); }) ||
      !all([](Segment* one) { return one->Order(); })) {
    return false;
  }
  for (int plane = 0; plane < planes; ++plane) {
    if (!decode([&](Segment* one) { return one->Kinds(plane); }) ||
        !all([&](Segment* one) { return one->Count(plane); }) ||
        !decode([&](Segment* one) { return one->Few(decoder.few); }) ||
        !decode([&](Segment* one) { return one->Some(decoder.some); })) {
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
  ScaleTable table;
  std::memcpy(&table, compact + kScaleTableOffset, sizeof table);
  if (!AreFrequencies(table.frequencies, kScaleSymbols)) return false;
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
  const auto decoder = std::make_unique<Decoder>(table);
  std::atomic<bool> whole = true;
  const int64_t pairs = (segments + kTogether - 1) / kTogether;
  run(pairs, [&](int64_t pair) {
    // Too much for the stack of a thread.
    static thread_local Workspace spaces[kTogether];
    std::optional<PackedSegment> memory[kTogether];
    PackedSegment* coded[kTogether];
    int count = 0;
    for (int64_t i = pair * kTogether;
         i < std::min(segments, (pair + 1) * kTogether); ++i) {
      const size_t n = static_cast<size_t>(i);
      PackedSegment& segment = memory[i % kTogether].emplace(
          SegmentOf(codec, layout, i), headers[n], compact + starts[n], message,
          &spaces[i % kTogether]);
      if (segment.coded()) {
        coded[count++] = &segment;
      } else {
        segment.Copy();
      }
    }
    if (!UnpackSegments(*decoder, NumPlanes(codec), count, coded)) {
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
