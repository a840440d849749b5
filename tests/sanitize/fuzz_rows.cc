// Fuzz target of rows.h: rows that come back, and bytes that are no message.

#include <utility>

#include "custom_ops/lib/rows/rows.h"
#include "custom_ops/lib/wire/rows_wire.h"
#include "custom_ops/lib/wire/wire.h"
#include "tests/sanitize/fuzz.h"

namespace tf_gc {
namespace {

constexpr Codec kCodecs[] = {kNoCodec, Codec::kOneBitAuto, Codec::kTwoBitAuto,
                             Codec::kThreeBit, Codec::kFourBit};

struct Tables {
  RowsFormat format;
  std::vector<RowLayout> layouts;
  std::vector<int64_t> rows;
};

Tables TablesOf(Input* input) {
  Tables tables;
  tables.format.codec = input->OneOf(kCodecs);
  tables.format.layers = tables.format.IsExact() ? 1 : 1 + input->Below(2);
  for (int64_t i = input->Below(3); i >= 0; --i) {
    const int64_t columns = 1 + input->Below(input->Coin() ? 20 : 400);
    tables.layouts.emplace_back(tables.format, columns);
    tables.rows.push_back(1 + input->Below(input->Coin() ? 20 : 40000));
  }
  return tables;
}

// A table's residual is part of the result: what is kept has to agree as well.
template <typename T>
void AppendSection(const Tables& tables, size_t table, const Occurrences& rows,
                   const Array<T>& values, Array<float>* residual,
                   int64_t split, Bytes* message) {
  const RowLayout& layout = tables.layouts[table];
  const auto count = static_cast<int64_t>(rows.indices.size());
  const RowsSection section = {count, GapBytes(rows.indices)};
  // An array of its own, which ends where the section ends.
  Array<uint8_t> to(LayoutOfSection(layout, section).end);
  WriteSectionFrame(layout, section, rows.indices, to.data());
  float* const kept = residual == nullptr ? nullptr : residual->data();
  for (const auto& [first, last] :
       {std::pair{split, count}, {int64_t{0}, split}}) {
    EncodeRows(tables.format, layout, section, rows, first, last, values.data(),
               kept, kept, to.data());
  }
  message->insert(message->end(), to.data(), to.data() + to.size());
  if (residual != nullptr) {
    const Bytes bits = residual->Bits();
    message->insert(message->end(), bits.begin(), bits.end());
  }
}

// The sums of messages with equal bytes, one for each replica; none
// if they are no messages.
template <typename T>
Bytes Decoded(const Tables& tables, const Bytes& bytes, int replicas) {
  Array<uint8_t> message(static_cast<int64_t>(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), message.data());
  std::vector<ReceivedRows> received;
  if (!ReadRows(tables.format, tables.layouts, tables.rows, message.data(),
                message.size(), &received)) {
    return {};
  }
  Bytes sums;
  for (size_t table = 0; table < received.size(); ++table) {
    const MergedRows rows =
        MergeRows(std::vector<const ReceivedRows*>(replicas, &received[table]));
    const auto count = static_cast<int64_t>(rows.indices.size());
    for (int64_t i = 0; i < count; ++i) {
      CHECK(rows.indices[i] >= 0 && rows.indices[i] < tables.rows[table]);
      CHECK(i == 0 || rows.indices[i - 1] < rows.indices[i]);
    }
    Array<T> values(count * tables.layouts[table].columns());
    DecodeRows(tables.format, tables.layouts[table], rows, 0, count,
               values.data());
    const Bytes bits = values.Bits();
    sums.insert(sums.end(), bits.begin(), bits.end());
  }
  return sums;
}

template <typename T>
void FuzzRowsOf(Input* input) {
  const Tables tables = TablesOf(input);
  const bool keeps =
      tables.format.layers == 1 && !tables.format.IsExact() && input->Coin();
  std::vector<Occurrences> rows;
  std::vector<Array<T>> values;
  std::vector<Array<float>> residuals;
  std::vector<int64_t> splits;
  for (size_t table = 0; table < tables.rows.size(); ++table) {
    std::vector<int64_t> indices(input->Below(input->Coin() ? 3 : 60));
    for (int64_t& index : indices) index = input->Below(tables.rows[table]);
    const auto count = static_cast<int64_t>(indices.size());
    rows.push_back(OccurrencesOf(indices.data(), count));
    const int64_t columns = tables.layouts[table].columns();
    values.emplace_back(count * columns);
    values.back().Fill(input);
    // A residual of the whole table would take the fuzzer's time.
    residuals.emplace_back(
        keeps && tables.rows[table] <= 20 ? tables.rows[table] * columns : 0);
    residuals.back().Fill(input);
    splits.push_back(
        input->Below(static_cast<int64_t>(rows.back().indices.size()) + 1));
  }
  const RowsHeader header =
      tables.format.Header(static_cast<int64_t>(tables.rows.size()));
  const auto* first = reinterpret_cast<const uint8_t*>(&header);
  const auto encode = [&](bool with_residuals) {
    Bytes message(first, first + sizeof(header));
    for (size_t table = 0; table < tables.rows.size(); ++table) {
      Array<float> kept(residuals[table].size());
      if (kept.size() > 0) kept.CopyFrom(residuals[table]);
      AppendSection(tables, table, rows[table], values[table],
                    with_residuals && kept.size() > 0 ? &kept : nullptr,
                    splits[table], &message);
    }
    return message;
  };
  if (keeps) SameForAllTargets([&] { return encode(true); });
  Bytes message;
  SameForAllTargets([&] {
    message = encode(false);
    return message;
  });
  const int replicas = 1 + static_cast<int>(input->Below(3));
  SameForAllTargets([&] { return Decoded<T>(tables, message, replicas); });
  for (int64_t i = input->Below(6); i >= 0; --i) {
    Bytes changed = message;
    if (input->Coin()) changed.resize(input->Below(changed.size() + 1));
    for (int64_t j = input->Below(4); j > 0 && !changed.empty(); --j) {
      const int64_t near = std::min<int64_t>(48, changed.size());
      const int64_t at = input->Below(input->Coin() ? near : changed.size());
      changed[at] = input->Value<uint8_t>();
    }
    if (changed.size() >= sizeof(header) + 2 * sizeof(int64_t) &&
        input->Below(4) == 0) {
      const int64_t number = input->Hostile();
      memcpy(changed.data() + sizeof(header) + 8 * input->Below(2), &number,
             sizeof(number));
    }
    SameForAllTargets([&] { return Decoded<T>(tables, changed, replicas); });
  }
}

}  // namespace

void FuzzRows(Input* input) {
  WithType(input, [&](auto type) { FuzzRowsOf<decltype(type)>(input); });
}

}  // namespace tf_gc
