// A segment that is being unpacked, in steps: those that decode rows are taken
// for several segments together. Internal to the library.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>

#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/compact/segments.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {

// The memory that unpacking a segment takes besides its input and output.
struct UnpackWorkspace {
  CodedRows rows;
  BlockLists list;
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

class PackedSegment {
 public:
  // `from` has the bytes that the header says, and up to 8 bytes more are read.
  PackedSegment(const SegmentOf& segment, const SegmentHeader& header,
                const uint8_t* from, uint8_t* message, UnpackWorkspace* space)
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
    std::memcpy(codes_, from_, blocks_.code_bytes);
    if (scaled()) {
      std::memcpy(scales_, from_ + blocks_.code_bytes, blocks_.scale_bytes);
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

  // Writes the scales and puts the blocks in order, once the high bytes are
  // decoded. False if they do not fit the header.
  bool Order() {
    uint8_t* const high = space_->high;
    if (!scaled()) std::fill_n(high, blocks_.count, kHighByteOfNone);
    const auto& functions = ActiveCompactFunctions();
    functions.list_blocks(high, blocks_.count, &space_->list);
    if (space_->list.count != header_.filled) return false;
    if (scaled()) {
      functions.put_low(high, blocks_.count, from_ + layout_.scales_offset,
                        scales_);
    }
    SetOrder(space_->list,
             scaled() ? reinterpret_cast<const uint16_t*>(scales_) : nullptr,
             blocks_.count, header_.period, header_.paired != 0,
             &space_->order);
    return true;
  }

  // Returns the rows of a plane's kinds.
  CodedRows* Kinds(int plane) {
    const uint8_t* const counts = CountsOf(plane);
    only_kind_ = OnlyKind(counts);
    if (only_kind_ < kKinds) {
      std::fill_n(space_->kinds, layout_.runs, only_kind_);
      return Rows(nullptr, 0, space_->kinds);
    }
    space_->kind_table.emplace(KindTable(counts));
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
      if (header_.paired != 0) {
        uint8_t* const kinds = space_->kinds;
        for (int64_t i = layout_.kinds; i-- > 0;) {
          kinds[2 * i] = kinds[2 * i + 1] = kinds[i];
        }
      }
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
    ActiveCompactFunctions().join(blocks_.codec, space_->planes, space_->order,
                                  codes_);
    ClearEmpty();
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

  const uint8_t* CountsOf(int plane) const {
    return from_ + layout_.counts_offset + plane * kKinds;
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

  // Writes the codes of the blocks of which no run has codes.
  void ClearEmpty() const {
    if (header_.period != 0) return;
    const int64_t bytes = CodeBytes(blocks_.codec);
    const uint16_t* const empty = space_->list.empty;
    for (int64_t i = 0; i < blocks_.count - header_.filled; ++i) {
      std::memset(codes_ + empty[i] * bytes, 0, bytes);
    }
  }

  const Blocks blocks_;
  const SegmentHeader header_;
  const SegmentLayout layout_;
  const uint8_t* const from_;
  uint8_t* const codes_;
  uint8_t* const scales_;
  const uint8_t* mixed_;         // of the next plane
  int only_kind_ = 0;            // of the next plane
  int64_t bits_[kClasses] = {};  // of the next plane
  // Which magnitudes have a common bit that is 1, of the planes so far: those
  // with a rare bit.
  const uint64_t* common_ = nullptr;
  UnpackWorkspace* const space_;
};

}  // namespace tf_gc
