// The scalar kernels: the definition of two_bit_block.h over ranges of blocks.

#include <cstdint>

#include "custom_ops/lib/counts_block.h"
#include "custom_ops/lib/two_bit_block.h"
#include "custom_ops/lib/two_bit_kernels.h"
#include "custom_ops/lib/wire.h"

namespace tf_gc {
namespace {

// Calls visit(block, first element, elements in the block) for each block.
template <typename Visit>
void ForEachBlock(int64_t size, Visit visit) {
  for (int64_t first = 0; first < size; first += kBlockSize) {
    const int64_t rest = size - first;
    visit(first / kBlockSize, first,
          static_cast<int>(rest < kBlockSize ? rest : kBlockSize));
  }
}

template <typename T>
void EncodeFixedScalar(const T* gradient, const float* residual_in,
                       float* residual_out, int64_t size, float threshold,
                       uint8_t* codes) {
  ForEachBlock(size, [=](int64_t block, int64_t first, int count) {
    EncodeFixedBlock(gradient + first, residual_in + first,
                     residual_out + first, count, threshold,
                     codes + block * kBlockCodeBytes);
  });
}

template <typename T>
void EncodeAutoScalar(const T* gradient, const float* residual_in,
                      const float* addend, float* residual_out, int64_t size,
                      uint8_t* codes, uint16_t* scales) {
  ForEachBlock(size, [=](int64_t block, int64_t first, int count) {
    EncodeAutoBlock(gradient + first, residual_in + first,
                    addend == nullptr ? nullptr : addend + first,
                    residual_out + first, count,
                    codes + block * kBlockCodeBytes, scales + block);
  });
}

template <typename T>
void DecodeSumFixedScalar(const uint8_t* const* codes, int64_t replicas,
                          int64_t size, float threshold, T* sum) {
  ForEachBlock(size, [=](int64_t block, int64_t first, int count) {
    float sums[kBlockSize];
    SumFixedBlock(codes, replicas, block, threshold, sums);
    for (int i = 0; i < count; ++i) RoundTo(sums[i], sum + first + i);
  });
}

template <typename T>
void DecodeSumAutoScalar(const uint8_t* const* codes,
                         const uint16_t* const* scales, int64_t replicas,
                         int64_t size, T* sum) {
  ForEachBlock(size, [=](int64_t block, int64_t first, int count) {
    float sums[kBlockSize];
    SumAutoBlock(codes, scales, replicas, block, sums);
    for (int i = 0; i < count; ++i) RoundTo(sums[i], sum + first + i);
  });
}

void CountFixedScalar(const uint8_t* const* codes, int64_t replicas,
                      int64_t blocks, int bits, uint8_t* counts) {
  for (int64_t i = 0; i < blocks * kBlockCodeBytes; ++i) {
    CountByte(codes, replicas, i, bits, counts);
  }
}

template <int kBits, typename T>
void DecodeCountsOf(const uint8_t* counts, int64_t size, float threshold,
                    T* sum) {
  for (int64_t i = 0; i < size; ++i) {
    RoundTo(CountValue<kBits>(CountAt<kBits>(counts, i), threshold), sum + i);
  }
}

template <typename T>
void DecodeCountsScalar(const uint8_t* counts, int bits, int64_t size,
                        float threshold, T* sum) {
  switch (bits) {
    case 4:
      return DecodeCountsOf<4>(counts, size, threshold, sum);
    case 8:
      return DecodeCountsOf<8>(counts, size, threshold, sum);
    case 16:
      return DecodeCountsOf<16>(counts, size, threshold, sum);
  }
}

template <typename T>
constexpr Kernels<T> kScalarKernels = {
    EncodeFixedScalar<T>,   EncodeAutoScalar<T>, DecodeSumFixedScalar<T>,
    DecodeSumAutoScalar<T>, CountFixedScalar,    DecodeCountsScalar<T>};

}  // namespace

template <>
const Kernels<float>& ScalarKernels() {
  return kScalarKernels<float>;
}
template <>
const Kernels<Half>& ScalarKernels() {
  return kScalarKernels<Half>;
}
template <>
const Kernels<BFloat16>& ScalarKernels() {
  return kScalarKernels<BFloat16>;
}

}  // namespace tf_gc
