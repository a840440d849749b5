// The frame of a message: its sections, and the numbers of its rows.

#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_ops/lib/rows/rows.h"
#include "custom_ops/lib/wire/rows_wire.h"

namespace tf_gc {
namespace {

constexpr int kGapBits = 7;  // of a byte
constexpr uint8_t kMore = 1 << kGapBits;

// Calls visit(gap) for each index.
template <typename Visit>
void ForEachGap(const std::vector<int64_t>& indices, Visit visit) {
  int64_t next = 0;
  for (int64_t index : indices) {
    visit(static_cast<uint64_t>(index - next));
    next = index + 1;
  }
}

// Reads the indices of a section. False if they do not take exactly its bytes,
// or not all are below `table_rows`.
bool ReadGaps(const uint8_t* from, const RowsSection& section,
              int64_t table_rows, std::vector<int64_t>* indices) {
  const uint8_t* const end = from + section.gap_bytes;
  indices->reserve(section.rows);
  int64_t next = 0;
  for (int64_t row = 0; row < section.rows; ++row) {
    uint64_t gap = 0;
    bool more = true;
    for (int shift = 0; more; shift += kGapBits) {
      if (from == end || shift + kGapBits > 63) return false;
      gap |= static_cast<uint64_t>(*from & (kMore - 1)) << shift;
      more = (*from++ & kMore) != 0;
    }
    if (next >= table_rows || gap >= static_cast<uint64_t>(table_rows - next)) {
      return false;
    }
    indices->push_back(next + static_cast<int64_t>(gap));
    next = indices->back() + 1;
  }
  return from == end;
}

}  // namespace

SectionLayout LayoutOfSection(const RowLayout& row,
                              const RowsSection& section) {
  SectionLayout layout;
  layout.scales = sizeof(RowsSection);
  layout.codes = layout.scales + section.rows * row.scales() * kScaleBytes;
  layout.gaps = layout.codes + section.rows * row.bytes();
  layout.end = RoundUp(layout.gaps + section.gap_bytes, kWordBytes);
  return layout;
}

int64_t GapBytes(const std::vector<int64_t>& indices) {
  int64_t bytes = 0;
  ForEachGap(indices, [&](uint64_t gap) {
    for (++bytes; gap >= kMore; gap >>= kGapBits) ++bytes;
  });
  return bytes;
}

void WriteSectionFrame(const RowLayout& row, const RowsSection& section,
                       const std::vector<int64_t>& indices, uint8_t* to) {
  std::memcpy(to, &section, sizeof(section));
  const SectionLayout layout = LayoutOfSection(row, section);
  uint8_t* next = to + layout.gaps;
  ForEachGap(indices, [&](uint64_t gap) {
    for (; gap >= kMore; gap >>= kGapBits) {
      *next++ = static_cast<uint8_t>(gap | kMore);
    }
    *next++ = static_cast<uint8_t>(gap);
  });
  std::memset(next, 0, to + layout.end - next);
}

bool ReadRows(const RowsFormat& format, const std::vector<RowLayout>& layouts,
              const std::vector<int64_t>& table_rows, const uint8_t* message,
              int64_t size, std::vector<ReceivedRows>* sections) {
  const RowsHeader expected =
      format.Header(static_cast<int64_t>(layouts.size()));
  if (size < static_cast<int64_t>(sizeof(expected)) ||
      std::memcmp(message, &expected, sizeof(expected)) != 0) {
    return false;
  }
  int64_t at = sizeof(expected);
  for (size_t table = 0; table < layouts.size(); ++table) {
    const RowLayout& row = layouts[table];
    RowsSection section;
    if (size - at < static_cast<int64_t>(sizeof(section))) return false;
    std::memcpy(&section, message + at, sizeof(section));
    // Each row takes a byte or more, so that these numbers cannot overflow.
    const int64_t rest = size - at - static_cast<int64_t>(sizeof(section));
    const int64_t row_bytes = row.scales() * kScaleBytes + row.bytes();
    if (section.rows < 0 || section.rows > rest / row_bytes ||
        section.gap_bytes < 0 || section.gap_bytes > rest) {
      return false;
    }
    const SectionLayout layout = LayoutOfSection(row, section);
    if (layout.end > size - at) return false;
    ReceivedRows received = {message + at, layout, {}};
    if (!ReadGaps(message + at + layout.gaps, section, table_rows[table],
                  &received.indices)) {
      return false;
    }
    sections->push_back(std::move(received));
    at += layout.end;
  }
  return true;
}

}  // namespace tf_gc
