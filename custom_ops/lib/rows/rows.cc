// Encoding and decoding of rows, by the codecs of cpu/codec.h.

#include "custom_ops/lib/rows/rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/cpu/float_mode.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/rows_wire.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {
namespace {

constexpr int64_t kMostCodeBytes = CodeBytes(Codec::kEightBit);

// Copies codes between a part and a whole block, of which a part has the first
// `bytes` bytes: in each plane the first ones.
void CopyPlanes(Codec codec, int64_t bytes, const uint8_t* from,
                int64_t from_bytes, uint8_t* to, int64_t to_bytes) {
  const int64_t planes = InPlanes(CodeBits(codec)) ? CodeBits(codec) : 1;
  for (int64_t i = 0; i < planes; ++i) {
    std::memcpy(to + i * to_bytes / planes, from + i * from_bytes / planes,
                bytes / planes);
  }
}

// Whether zeros after a part change nothing but that they are zeros. Then the
// SIMD code takes the part as a whole block. The scale of kOneBitAuto is a
// mean.
bool MayBePadded(Codec codec) { return codec != Codec::kOneBitAuto; }

// Asks for the memory of a row that will be read and written soon: rows lie
// anywhere in a table.
void FetchRow(const char* row, int64_t bytes) {
#if defined(__GNUC__)
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(row + i, /*write=*/1);
  }
#endif
}

}  // namespace

template <typename T>
void EncodeRows(const RowsFormat& format, const RowLayout& layout,
                const RowsSection& section, const Occurrences& rows,
                int64_t first, int64_t last, const T* values,
                DType residual_dtype, const void* residual_in,
                void* residual_out, uint8_t* to) {
  const ScopedExactFloatMode mode;
  const int64_t element_bytes = BytesOf(residual_dtype);
  const SectionLayout at = LayoutOfSection(layout, section);
  const int64_t columns = layout.columns();
  const int64_t count = static_cast<int64_t>(rows.indices.size());
  // Each part begins a block, which is zero after the part.
  std::vector<float> sum(layout.parts() * kBlockSize);
  std::vector<float> rest(residual_in == nullptr ? columns : 0);
  alignas(float) char padded[kBlockSize * sizeof(float)];
  for (int64_t row = first; row < last; ++row) {
    const int64_t* const positions = rows.positions.data() + rows.starts[row];
    const int64_t occurrences = rows.starts[row + 1] - rows.starts[row];
    uint8_t* const codes = to + at.codes + row * layout.bytes();
    if (format.IsExact()) {
      SumOccurrences(values, columns, columns, positions, occurrences,
                     sum.data());
      std::memcpy(codes, sum.data(), layout.bytes());
      continue;
    }
    if (residual_in != nullptr && row + 1 < count) {
      const int64_t row_bytes = columns * element_bytes;
      FetchRow(static_cast<const char*>(residual_in) +
                   rows.indices[row + 1] * row_bytes,
               row_bytes);
    }
    SumOccurrences(values, columns, layout.PartSize(0), positions, occurrences,
                   sum.data());
    auto* scale =
        reinterpret_cast<uint16_t*>(to + at.scales) + row * layout.scales();
    const int64_t start = rows.indices[row] * columns * element_bytes;
    if (residual_in == nullptr) std::fill(rest.begin(), rest.end(), 0.0f);
    const char* before = residual_in == nullptr
                             ? reinterpret_cast<char*>(rest.data())
                             : static_cast<const char*>(residual_in) + start;
    char* const after = residual_out == nullptr
                            ? reinterpret_cast<char*>(rest.data())
                            : static_cast<char*>(residual_out) + start;
    for (int64_t layer = 0; layer < layout.layers(); ++layer) {
      for (int64_t part = 0; part < layout.parts(); ++part) {
        const int64_t at_byte = part * layout.PartSize(0) * element_bytes;
        const int64_t size = layout.PartSize(part);
        const float* const gradient = sum.data() + part * kBlockSize;
        uint8_t block[kMostCodeBytes];
        if (size < kBlockSize && MayBePadded(format.codec)) {
          std::memcpy(padded, before + at_byte, size * element_bytes);
          std::memset(padded + size * element_bytes, 0,
                      (kBlockSize - size) * element_bytes);
          Encode(format.codec, gradient, padded, padded, kBlockSize, 0.0f,
                 block, scale++, residual_dtype);
          std::memcpy(after + at_byte, padded, size * element_bytes);
        } else {
          Encode(format.codec, gradient, before + at_byte, after + at_byte,
                 size, 0.0f, block, scale++, residual_dtype);
        }
        const int64_t bytes = layout.PartBytes(part);
        CopyPlanes(format.codec, bytes, block, CodeBytes(format.codec),
                   codes + layout.PartOffset(layer, part), bytes);
      }
      // The next layer encodes what this one left.
      std::fill(sum.begin(), sum.end(), 0.0f);
      before = after;
    }
  }
}

template <typename T>
void DecodeRows(const RowsFormat& format, const RowLayout& layout,
                const MergedRows& rows, int64_t first, int64_t last,
                T* values) {
  const ScopedExactFloatMode mode;
  const int64_t columns = layout.columns();
  std::vector<uint8_t> blocks;
  std::vector<const uint8_t*> codes;
  std::vector<const uint16_t*> scales;
  for (int64_t row = first; row < last; ++row) {
    T* const to = values + row * columns;
    const RowSource* const source = rows.sources.data() + rows.starts[row];
    const int64_t sources = rows.starts[row + 1] - rows.starts[row];
    if (format.IsExact()) {
      SumExactRows(source, sources, columns, to);
      continue;
    }
    for (int64_t part = 0; part < layout.parts(); ++part) {
      codes.clear();
      scales.clear();
      blocks.assign(sources * layout.layers() * kMostCodeBytes, 0);
      for (int64_t i = 0; i < sources; ++i) {
        const auto& [scale, of_row] = source[i];
        for (int64_t layer = 0; layer < layout.layers(); ++layer) {
          uint8_t* const block = blocks.data() + codes.size() * kMostCodeBytes;
          const int64_t bytes = layout.PartBytes(part);
          CopyPlanes(format.codec, bytes,
                     of_row + layout.PartOffset(layer, part), bytes, block,
                     CodeBytes(format.codec));
          codes.push_back(block);
          scales.push_back(scale + layer * layout.parts() + part);
        }
      }
      DecodeSum(format.codec, codes.data(), scales.data(),
                static_cast<int64_t>(codes.size()), layout.PartSize(part), 0.0f,
                to + part * layout.PartSize(0));
    }
  }
}

#define TF_GC_INSTANTIATE(T)                                                   \
  template void EncodeRows<T>(const RowsFormat&, const RowLayout&,             \
                              const RowsSection&, const Occurrences&, int64_t, \
                              int64_t, const T*, DType, const void*, void*,    \
                              uint8_t*);                                       \
  template void DecodeRows<T>(const RowsFormat&, const RowLayout&,             \
                              const MergedRows&, int64_t, int64_t, T*)

TF_GC_INSTANTIATE(float);
TF_GC_INSTANTIATE(Half);
TF_GC_INSTANTIATE(BFloat16);
#undef TF_GC_INSTANTIATE

}  // namespace tf_gc
