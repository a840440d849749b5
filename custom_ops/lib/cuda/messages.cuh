// Messages on a GPU: their frames, and how a lane decodes its part of a block.

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/codec/eight_bit_block.h"
#include "custom_ops/lib/codec/levels_block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/cuda/tables.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {

// Whether any row has another header than the expected one. All lanes of a warp
// call it together.
__device__ inline bool AnyUnexpected(const RowTable& rows) {
  int64_t expected[2];
  memcpy(expected, &rows.header, sizeof(expected));
  bool found = false;
  for (int row = threadIdx.x % kWarp; row < rows.count(); row += kWarp) {
    const int64_t* header = reinterpret_cast<const int64_t*>(rows.Row(row));
    found |= header[0] != expected[0] || header[1] != expected[1];
  }
  return __any_sync(kAllLanes, found);
}

// Writes a message's header and padding.
__device__ inline void WriteFrame(const MessageLayout& layout,
                                  const MessageHeader& header,
                                  uint8_t* message) {
  *reinterpret_cast<MessageHeader*>(message) = header;
  for (int64_t i = layout.padding_offset; i < layout.size; ++i) message[i] = 0;
}

// Where the codes and the scale of a block are in a message. A codec that is
// known at compile time saves a multiplication of 64 bits.
template <Codec kCodec>
__device__ inline int64_t CodesOffset(int64_t block) {
  return static_cast<int64_t>(sizeof(MessageHeader)) +
         block * CodeBytes(kCodec);
}
__device__ inline int64_t ScaleOffset(const MessageLayout& layout,
                                      int64_t block) {
  return layout.scales_offset + block * kScaleBytes;
}

// Calls load(row) for kRows rows that follow each other, from `row` on, and
// then add() with each result. The loads come first so that none waits for
// another.
template <int kRows, typename Load, typename Add>
__device__ inline const uint8_t* AddBatch(const uint8_t* row, int64_t size,
                                          Load load, Add add) {
  decltype(load(row)) loaded[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i, row += size) loaded[i] = load(row);
#pragma unroll
  for (int i = 0; i < kRows; ++i) add(loaded[i]);
  return row;
}

// Calls load(row) and then add() with the result for all rows, in their order.
// Loads up to kAtOnce rows, 1, 2 or 4, before it adds them.
template <int kAtOnce, typename Load, typename Add>
__device__ inline void ForEachRow(const RowTable& rows, Load load, Add add) {
  const int64_t size = rows.layout.size;
  for (int group = 0; group < rows.groups; ++group) {
    const uint8_t* row = rows.first[group];
    int left = rows.starts[group + 1] - rows.starts[group];
    if constexpr (kAtOnce == 4) {
      for (; left >= 4; left -= 4) row = AddBatch<4>(row, size, load, add);
    }
    if constexpr (kAtOnce >= 2) {
      for (; left >= 2; left -= 2) row = AddBatch<2>(row, size, load, add);
    }
    for (; left >= 1; left -= 1) row = AddBatch<1>(row, size, load, add);
  }
}

// ---- What a lane's codes stand for ------------------------------------------
//
// A decoder has
//   kCodec                    a codec with its codes
//   kRowsAtOnce               how many rows' Loaded fit into the registers
//   Loaded                    what a lane needs of a block, as it is in memory
//   Load(lane, codes, scale)  of the block at these places in a message
//   Values(lane, loaded, unit, v)  the values of the lane's elements
//   Finish(sum, unit)         the sum of values over messages

// The bytes of two words that `selector` has the numbers of, all below 8.
__device__ inline uint32_t PickBytes(uint32_t low, uint32_t high,
                                     uint32_t selector) {
#if defined(__CUDA_ARCH__)
  // __byte_perm() also masks the numbers.
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;"
      : "=r"(bytes)
      : "r"(low), "r"(high), "r"(selector));
  return bytes;
#else
  return __byte_perm(low, high, selector);
#endif
}

// `kScaled`: with a scale for each block, else in units of the threshold.
template <bool kScaled>
struct TwoBitDecoder {
  static constexpr Codec kCodec =
      kScaled ? Codec::kTwoBitAuto : Codec::kTwoBitFixed;
  static constexpr int kRowsAtOnce = 4;

  struct Loaded {
    CodeBytesOfLane<2> codes;
    uint16_t scale;
  };

  template <typename Codes>
  static __device__ Loaded Load(int lane, const Codes& codes,
                                const uint16_t* scale) {
    return {CodeBytesOfLane<2>::Load(lane, codes),
            kScaled ? *scale : kScaleOne};
  }

  // Looks the codes up in a table of the four values' upper halves, two at
  // once: the lower ones are 0, since a scale is a bfloat16.
  static __device__ void Values(int lane, const Loaded& loaded, float,
                                float* values) {
    const float scale = ToFloat(BFloat16{loaded.scale});
    const uint32_t low = Halves(CodeValue(0, scale), CodeValue(1, scale));
    const uint32_t high = Halves(CodeValue(2, scale), CodeValue(3, scale));
    for (int q = 0; q < Team::kQuads; ++q, values += Team::kQuad) {
      // A code in each byte, the first element's in the highest, and the
      // numbers of its value's two bytes in the table.
      uint32_t spread = loaded.codes.Quad(lane, q);
      spread = (spread | spread << 12) & 0x000f000fu;
      spread = (spread | spread << 6) & 0x03030303u;
      const uint32_t bytes = spread * 0x22u + 0x10101010u;
      const uint32_t first = PickBytes(low, high, bytes >> 16);
      const uint32_t last = PickBytes(low, high, bytes & 0xffffu);
      values[0] = BitCast<float>(first & 0xffff0000u);
      values[1] = BitCast<float>(first << 16);
      values[2] = BitCast<float>(last & 0xffff0000u);
      values[3] = BitCast<float>(last << 16);
    }
  }

  // Counts of messages are exact in float32 up to 2^24.
  static __device__ float Finish(float sum, float unit) {
    return kScaled ? sum : sum * unit;
  }

 private:
  static __device__ uint32_t Halves(float low, float high) {
    return BitCast<uint32_t>(low) >> 16 |
           (BitCast<uint32_t>(high) & 0xffff0000u);
  }
};

struct OneBitDecoder {
  static constexpr Codec kCodec = Codec::kOneBitAuto;
  static constexpr int kRowsAtOnce = 4;

  struct Loaded {
    CodeBytesOfLane<1> codes;
    uint16_t scale;
  };

  template <typename Codes>
  static __device__ Loaded Load(int lane, const Codes& codes,
                                const uint16_t* scale) {
    return {CodeBytesOfLane<1>::Load(lane, codes), *scale};
  }

  static __device__ void Values(int lane, const Loaded& loaded, float,
                                float* values) {
    const float scale = ToFloat(BFloat16{loaded.scale});
    for (int i = 0; i < Team::kElements; ++i) {
      const unsigned codes = loaded.codes.Quad(lane, i / Team::kQuad);
      values[i] = SignValue(codes >> (3 - i % Team::kQuad) & 1, scale);
    }
  }

  static __device__ float Finish(float sum, float) { return sum; }
};

template <typename Definition, int kMagnitudeBits>
struct LevelsDecoder {
  static constexpr Codec kCodec = Definition::kCodec;
  static constexpr int kRowsAtOnce = 1;
  using Plane = CodeBytesOfLane<1, Order::kFirstLow>;

  struct Loaded {
    Plane planes[kMagnitudeBits + 1];
    uint16_t scale;
  };

  template <typename Codes>
  static __device__ Loaded Load(int lane, const Codes& codes,
                                const uint16_t* scale) {
    Loaded loaded;
    for (int plane = 0; plane <= kMagnitudeBits; ++plane) {
      loaded.planes[plane] = Plane::Load(lane, PlaneOf(codes, plane));
    }
    loaded.scale = *scale;
    return loaded;
  }

  static __device__ void Values(int lane, const Loaded& loaded, float,
                                float* values) {
    const float scale = ToFloat(BFloat16{loaded.scale});
    // Zero times such a scale is plus zero.
    const bool usual = loaded.scale < 0x7f80;
    for (int q = 0; q < Team::kQuads; ++q, values += Team::kQuad) {
      unsigned nibbles[kMagnitudeBits + 1];
      unsigned sent = 0;
      for (int plane = 0; plane <= kMagnitudeBits; ++plane) {
        nibbles[plane] = loaded.planes[plane].Quad(lane, q);
        if (plane < kMagnitudeBits) sent |= nibbles[plane];
      }
      LookUp(nibbles, scale, values);
      // Minus and zero say that an element is not finite.
      const unsigned not_finite = nibbles[kMagnitudeBits] & ~sent;
      if (usual && not_finite == 0) continue;
      for (int i = 0; i < Team::kQuad; ++i) {
        if (sent >> i & 1) continue;
        values[i] = BitCast<float>(not_finite >> i & 1 ? kNaNBits : 0);
      }
    }
  }

  static __device__ float Finish(float sum, float) { return sum; }

 private:
  using L = Levels<kMagnitudeBits>;

  // Looks four levels up at once, in tables of the two upper bytes of each: the
  // lower ones are 0.
  static __device__ void LookUp(const unsigned* nibbles, float scale,
                                float* values) {
    uint32_t numbers = 0;
    for (int plane = 0; plane < kMagnitudeBits; ++plane) {
      numbers |= Spread(nibbles[plane]) << plane;
    }
    const uint32_t selector =
        PickBytes(numbers | numbers >> 4, 0, 0x4420);  // a number in 4 bits
    const uint32_t high = PickBytes(Table(0, 24), Table(4, 24), selector) |
                          Spread(nibbles[kMagnitudeBits]) << 7;
    const uint32_t low = PickBytes(Table(0, 16), Table(4, 16), selector);
    const uint32_t first = PickBytes(low, high, 0x5140);
    const uint32_t last = PickBytes(low, high, 0x7362);
    values[0] = scale * BitCast<float>(first << 16);
    values[1] = scale * BitCast<float>(first & 0xffff0000u);
    values[2] = scale * BitCast<float>(last << 16);
    values[3] = scale * BitCast<float>(last & 0xffff0000u);
  }

  // Bit i of a nibble becomes the lowest bit of byte i.
  static __device__ uint32_t Spread(uint32_t nibble) {
    return nibble * 0x00204081u & 0x01010101u;
  }

  // A byte of each of four levels, from level `first` on; a compiler makes a
  // constant of it.
  static __device__ uint32_t Table(int first, int shift) {
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) {
      if (first + i > L::kCount) continue;
      const uint32_t level = BitCast<uint32_t>(L::Unit(first + i));
      bytes |= (level >> shift & 0xff) << 8 * i;
    }
    return bytes;
  }
};

using ThreeBitDecoder = LevelsDecoder<ThreeBit, 2>;
using FourBitDecoder = LevelsDecoder<FourBit, 3>;

struct EightBitDecoder {
  static constexpr Codec kCodec = Codec::kEightBit;
  static constexpr int kRowsAtOnce = 4;

  struct Loaded {
    uint32_t quads[Team::kQuads];
    uint16_t scale;
  };

  template <typename Codes>
  static __device__ Loaded Load(int lane, const Codes& codes,
                                const uint16_t* scale) {
    return {{LoadWord(codes, Team::Index(lane, 0)),
             LoadWord(codes, Team::Index(lane, Team::kQuad))},
            *scale};
  }

  static __device__ void Values(int, const Loaded& loaded, float,
                                float* values) {
    const float scale = ToFloat(BFloat16{loaded.scale});
    for (int i = 0; i < Team::kElements; ++i) {
      const uint32_t quad = loaded.quads[i / Team::kQuad];
      values[i] = EightBitValue(
          static_cast<uint8_t>(quad >> 8 * (i % Team::kQuad)), scale);
    }
  }

  static __device__ float Finish(float sum, float) { return sum; }
};

template <int kBits>
struct CountsDecoder {
  static constexpr Codec kCodec = CountsCodec(kBits);
  static constexpr int kRowsAtOnce = 4;

  // Holds the counts of four elements.
  using Word =
      std::conditional_t<kBits == 4, uint16_t,
                         std::conditional_t<kBits == 8, uint32_t, uint64_t>>;

  struct Loaded {
    Word quads[Team::kQuads];
  };

  static __device__ Loaded Load(int lane, const uint8_t* counts,
                                const uint16_t*) {
    const Word* words = reinterpret_cast<const Word*>(counts) + lane;
    return {{words[0], words[Team::kLanes]}};
  }

  static __device__ void Values(int, const Loaded& loaded, float unit,
                                float* values) {
    for (int i = 0; i < Team::kElements; ++i) {
      // Of two counts in a byte the first is in the high bits.
      const int shift =
          (kBits == 4 ? (i % Team::kQuad) ^ 1 : i % Team::kQuad) * kBits;
      const Word field =
          static_cast<Word>(loaded.quads[i / Team::kQuad] >> shift);
      values[i] = CountValue<kBits>(
          CountInField<kBits>(static_cast<uint32_t>(field)), unit);
    }
  }

  static __device__ float Finish(float sum, float) { return sum; }
};

// ---- Sums -------------------------------------------------------------------

// The first value of a sum: NaN, or -0. Adding a number to -0 gives that
// number, also if it is -0.
__device__ inline float StartOfSum(bool not_a_number) {
  return not_a_number ? BitCast<float>(kNaNBits) : -0.0f;
}

// Adds what a lane loaded of a block to the sums of its elements.
template <typename Decoder>
__device__ inline void AddLoaded(const typename Decoder::Loaded& loaded,
                                 int lane, float unit, float* sums) {
  float values[Team::kElements];
  Decoder::Values(lane, loaded, unit, values);
  for (int i = 0; i < Team::kElements; ++i) sums[i] += values[i];
}

// Adds a block of all rows to the sums of a lane's elements.
template <typename Decoder>
__device__ inline void AddRows(const RowTable& rows, int block, int lane,
                               float unit, float* sums) {
  const int64_t codes = CodesOffset<Decoder::kCodec>(block);
  const int64_t scale = ScaleOffset(rows.layout, block);
  ForEachRow<Decoder::kRowsAtOnce>(
      rows,
      [=](const uint8_t* row) {
        return Decoder::Load(lane, row + codes,
                             reinterpret_cast<const uint16_t*>(row + scale));
      },
      [=](const typename Decoder::Loaded& loaded) {
        AddLoaded<Decoder>(loaded, lane, unit, sums);
      });
}

}  // namespace tf_gc::gpu
