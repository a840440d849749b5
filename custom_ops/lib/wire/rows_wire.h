// The format of a message of rows: what a replica sends of the gradients of
// tables, such as embeddings, of which a step touches some rows only.
//
//   RowsHeader
//   for each table, from a multiple of 8 bytes on:
//     RowsSection
//     scales   of each row a bfloat16 for each layer and part
//     codes    of each row, for each layer and part; without a codec the
//              row itself, in float32
//     gaps     of each row how many rows of the table lie between it and the
//              row before it: seven bits a byte, the lowest first, the high bit
//              of a byte says that another follows (LEB128)
//   zeros up to a multiple of 8 bytes, and as many more as the sender likes
//
// Rows are in ascending order, each once. A row is cut into parts of equal
// sizes, multiples of 8 elements but for the last part. A part is a block of a
// codec (wire.h), of which only the first PartBytes() / bits bytes of each
// plane are sent, or the first PartBytes() bytes where there are no planes. All
// numbers are little-endian.

#pragma once

#include <cstdint>

#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

constexpr uint16_t kRowsMagic = 0x5247;  // "GR"
constexpr uint8_t kRowsVersion = 1;

struct RowsHeader {
  uint16_t magic;
  uint8_t version;
  uint8_t codec;  // kNoCodec: in float32
  uint32_t layers;
  int64_t tables;
};
static_assert(sizeof(RowsHeader) == 16, "the header is 16 bytes on the wire");

struct RowsSection {
  int64_t rows;
  int64_t gap_bytes;
};
static_assert(sizeof(RowsSection) == 16, "a section has 16 bytes before it");

// The most layers of a row.
constexpr int64_t kMaxLayers = 2;

// How rows are sent. A row is the sum of its layers, of which each encodes what
// those before it left.
struct RowsFormat {
  Codec codec;  // IsAuto(), or kNoCodec
  int64_t layers;

  bool IsExact() const { return codec == kNoCodec; }
  RowsHeader Header(int64_t tables) const {
    return {kRowsMagic, kRowsVersion, static_cast<uint8_t>(codec),
            static_cast<uint32_t>(layers), tables};
  }
};

// The bytes of a row of `columns` >= 1 elements.
class RowLayout {
 public:
  RowLayout(const RowsFormat& format, int64_t columns)
      : columns_(columns),
        bits_(format.IsExact() ? 0 : CodeBits(format.codec)),
        layers_(format.layers),
        parts_(NumBlocks(columns)),
        part_size_(RoundUp((columns + parts_ - 1) / parts_, 8)) {
    for (int64_t part = 0; part < parts_; ++part) {
      layer_bytes_ += PartBytes(part);
    }
  }

  TF_GC_HOST_DEVICE int64_t columns() const { return columns_; }
  TF_GC_HOST_DEVICE int64_t layers() const { return layers_; }
  TF_GC_HOST_DEVICE int64_t parts() const { return parts_; }

  // The elements of a part. Its first one is number part * PartSize(0).
  TF_GC_HOST_DEVICE int64_t PartSize(int64_t part) const {
    const int64_t rest = columns_ - part * part_size_;
    return rest < part_size_ ? rest : part_size_;
  }
  // The bytes of a part's codes.
  TF_GC_HOST_DEVICE int64_t PartBytes(int64_t part) const {
    return bits_ * ((PartSize(part) + 7) / 8);
  }
  // The scales of a row.
  TF_GC_HOST_DEVICE int64_t scales() const {
    return bits_ == 0 ? 0 : layers_ * parts_;
  }
  // The bytes of a row after its scales.
  TF_GC_HOST_DEVICE int64_t bytes() const {
    return bits_ == 0 ? columns_ * static_cast<int64_t>(sizeof(float))
                      : layers_ * layer_bytes_;
  }
  // Where the codes of a part begin in the row.
  TF_GC_HOST_DEVICE int64_t PartOffset(int64_t layer, int64_t part) const {
    return layer * layer_bytes_ + part * PartBytes(0);
  }

 private:
  int64_t columns_;
  int bits_;
  int64_t layers_;
  int64_t parts_;
  int64_t part_size_;
  int64_t layer_bytes_ = 0;
};

// Where a row of a section is.
struct RowSource {
  const uint16_t* scales;
  const uint8_t* codes;
};

}  // namespace tf_gc
