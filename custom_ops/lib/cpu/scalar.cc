// The functions of functions.h for every processor: loops over the blocks that
// the *_block.h define.

#include <cstdint>

#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/codec/eight_bit_block.h"
#include "custom_ops/lib/codec/levels_block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {
namespace {

#include "custom_ops/lib/cpu/residuals.inc"

// Calls visit(block, first element, elements in the block) for each block.
template <typename Visit>
void ForEachBlock(int64_t size, Visit visit) {
  for (int64_t first = 0; first < size; first += kBlockSize) {
    const int64_t rest = size - first;
    visit(first / kBlockSize, first,
          static_cast<int>(rest < kBlockSize ? rest : kBlockSize));
  }
}

// `Definition` is TwoBitFixed or the definition of another codec.
template <typename Definition, typename T>
void EncodeScalar(const T* gradient, const float* residual_in,
                  const float* addend, float* residual_out, int64_t size,
                  float threshold, uint8_t* codes, uint16_t* scales) {
  constexpr Codec kCodec = Definition::kCodec;
  ForEachBlock(size, [=](int64_t block, int64_t first, int count) {
    EncodeBlock<Definition>(gradient + first, From(residual_in, first),
                            From(addend, first), From(residual_out, first),
                            count, threshold, codes + block * CodeBytes(kCodec),
                            HasScales(kCodec) ? scales + block : nullptr);
  });
}

template <typename Definition, typename T>
void DecodeSumScalar(const uint8_t* const* codes, const uint16_t* const* scales,
                     int64_t replicas, int64_t size, float threshold, T* sum) {
  ForEachBlock(size, [=](int64_t block, int64_t first, int count) {
    float sums[kBlockSize];
    SumBlock<Definition>(codes, scales, replicas, block, sums);
    const float unit = HasScales(Definition::kCodec) ? 1.0f : threshold;
    for (int i = 0; i < count; ++i) RoundTo(sums[i] * unit, sum + first + i);
  });
}

template <typename Definition>
void CountScalar(const uint8_t* const* codes, const uint16_t* const* scales,
                 int64_t replicas, int64_t blocks, int bits, uint8_t* counts) {
  for (int64_t block = 0; block < blocks; ++block) {
    Definition::CountBlock(codes, scales, replicas, block, bits, counts);
  }
}

template <int kBits, typename T>
void DecodeCountsOf(const uint8_t* counts, int64_t size, float unit, T* sum) {
  for (int64_t i = 0; i < size; ++i) {
    RoundTo(CountValue<kBits>(CountAt<kBits>(counts, i), unit), sum + i);
  }
}

template <typename T>
void DecodeCountsScalar(const uint8_t* counts, int bits, int64_t size,
                        float unit, T* sum) {
  switch (bits) {
    case 4:
      return DecodeCountsOf<4>(counts, size, unit, sum);
    case 8:
      return DecodeCountsOf<8>(counts, size, unit, sum);
    case 16:
      return DecodeCountsOf<16>(counts, size, unit, sum);
  }
  Trap();
}

// Null for automatic codecs.
template <typename Definition>
constexpr auto Counting() {
  if constexpr (IsFixed(Definition::kCodec)) {
    return CountScalar<Definition>;
  } else {
    return nullptr;
  }
}

// `Codecs` are definitions of codecs.
template <typename T, typename... Codecs>
constexpr FunctionTable<T> TableOf() {
  FunctionTable<T> table = {};
  table.decode_counts = DecodeCountsScalar<T>;
  table.widen = WidenResiduals;
  table.narrow = NarrowResiduals;
  ((table.codecs[static_cast<int>(Codecs::kCodec)] =
        {EncodeScalar<Codecs, T>, DecodeSumScalar<Codecs, T>,
         Counting<Codecs>()}),
   ...);
  return table;
}

template <typename T>
constexpr FunctionTable<T> kScalarFunctions =
    TableOf<T, TwoBitFixed, TwoBitAuto, OneBitFixed, OneBitAuto, ThreeBit,
            FourBit, EightBit>();

}  // namespace

TF_GC_DEFINE_TABLE(FunctionTable, ScalarFunctions, kScalarFunctions);

}  // namespace tf_gc
