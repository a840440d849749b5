// The conversions of a GPU give the bits of block.h, for every number there is.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/cuda/numbers.cuh"
#include "tests/gpu/memory.h"
#include "tests/gpu/tests.h"

namespace tf_gc::gpu {
namespace {

template <typename T>
__device__ bool RoundsAsDefined(float x) {
  if (x != x) return true;  // RoundPair() takes no NaN.
  return RoundPair(x, -x, T{}) == RoundPairAsDefined<T>(x, -x);
}

template <typename T>
__device__ bool WidensAsDefined(uint16_t bits) {
  const float x = Widen(T{bits});
  const float defined = ToFloat(T{bits});
  return BitCast<uint32_t>(x) == BitCast<uint32_t>(defined) ||
         (x != x && defined != defined);
}

// Sets *wrong if a number whose high bits are the thread's number is converted
// in another way.
__global__ void ConvertAll(int* wrong) {
  const uint32_t high = blockIdx.x * blockDim.x + threadIdx.x;
  bool right = WidensAsDefined<Half>(static_cast<uint16_t>(high)) &&
               WidensAsDefined<BFloat16>(static_cast<uint16_t>(high));
  for (uint32_t low = 0; low < 1u << 16; ++low) {
    const float x = BitCast<float>(high << 16 | low);
    right = right && RoundsAsDefined<Half>(x) && RoundsAsDefined<BFloat16>(x);
  }
  if (!right) *wrong = 1;
}

}  // namespace

void TestNumbers() {
  const Array<int> wrong(std::vector<int>{0});
  ConvertAll<<<256, 256>>>(wrong.data());
  Check(cudaGetLastError(), "ConvertAll");
  if (wrong.Read()[0] == 0) return;
  std::fprintf(stderr, "a conversion of the GPU differs from block.h\n");
  std::exit(1);
}

}  // namespace tf_gc::gpu
