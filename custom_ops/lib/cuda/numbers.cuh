// Loads and stores of a lane's elements, four at a time, with the conversions
// of floats.h.

#pragma once

#include <cstdint>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/eight_bit_block.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/numbers/floats.h"

namespace tf_gc::gpu {

// ToFloat() of floats.h, except for the payload of a NaN, which reaches no
// result.
__device__ inline float Widen(BFloat16 x) { return ToFloat(x); }

__device__ inline float Widen(Half x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
#else
  return ToFloat(x);
#endif
}

template <typename T>
__device__ inline uint32_t RoundPairAsDefined(float first, float second) {
  T pair[2];
  RoundTo(first, &pair[0]);
  RoundTo(second, &pair[1]);
  return pair[0].bits | static_cast<uint32_t>(pair[1].bits) << 16;
}

// RoundTo() of floats.h for two numbers that are not NaN, the first one in the
// low bits. The processor's conversion gives the same bits.
__device__ inline uint32_t RoundPair(float first, float second, Half) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return RoundPairAsDefined<Half>(first, second);
#endif
}

__device__ inline uint32_t RoundPair(float first, float second, BFloat16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return RoundPairAsDefined<BFloat16>(first, second);
#endif
}

// ---- Four elements ----------------------------------------------------------

__device__ inline void LoadQuad(const float* from, float* values) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  values[0] = four.x;
  values[1] = four.y;
  values[2] = four.z;
  values[3] = four.w;
}

// T is Half or BFloat16.
template <typename T>
__device__ inline void LoadQuad(const T* from, float* values) {
  const uint2 four = *reinterpret_cast<const uint2*>(from);
  values[0] = Widen(T{static_cast<uint16_t>(four.x)});
  values[1] = Widen(T{static_cast<uint16_t>(four.x >> 16)});
  values[2] = Widen(T{static_cast<uint16_t>(four.y)});
  values[3] = Widen(T{static_cast<uint16_t>(four.y >> 16)});
}

__device__ inline void StoreQuad(const float* values, float* to) {
  *reinterpret_cast<float4*>(to) =
      make_float4(values[0], values[1], values[2], values[3]);
}

// Rounds as RoundTo() does. A value for a 16-bit type must not be NaN.
__device__ inline void RoundQuad(const float* values, float* to) {
  float rounded[Team::kQuad];
  for (int i = 0; i < Team::kQuad; ++i) RoundTo(values[i], &rounded[i]);
  StoreQuad(rounded, to);
}

template <typename T>
__device__ inline void RoundQuad(const float* values, T* to) {
  *reinterpret_cast<uint2*>(to) =
      make_uint2(RoundPair(values[0], values[1], T{}),
                 RoundPair(values[2], values[3], T{}));
}

// ---- A lane's elements of a block -------------------------------------------

__device__ inline float Widen(float x) { return x; }

// Calls quad(i, j) for element i of the lane, the first of four that can be
// accessed at once, or single(i, j) for each one that is in the tensor; j is
// their place in the block. `aligned` as in TensorTable.
template <typename Quad, typename Single>
__device__ inline void ForElements(const Team& team, bool aligned, Quad quad,
                                   Single single) {
  if (aligned && team.size == kBlockSize) {
    for (int i = 0; i < Team::kElements; i += Team::kQuad) {
      quad(i, Team::Index(team.lane, i));
    }
  } else {
    for (int i = 0; i < Team::kElements; ++i) {
      if (team.Inside(i)) single(i, Team::Index(team.lane, i));
    }
  }
}

// Sets the elements after the end of the tensor to 0.
template <typename T>
__device__ inline void LoadElements(const Team& team, bool aligned,
                                    const T* from, float* values) {
  for (int i = 0; i < Team::kElements; ++i) values[i] = 0.0f;
  ForElements(
      team, aligned, [=](int i, int j) { LoadQuad(from + j, values + i); },
      [=](int i, int j) { values[i] = Widen(from[j]); });
}

__device__ inline void StoreElements(const Team& team, bool aligned,
                                     const float* values, float* to) {
  ForElements(
      team, aligned, [=](int i, int j) { StoreQuad(values + i, to + j); },
      [=](int i, int j) { to[j] = values[i]; });
}

template <typename T>
__device__ inline void RoundElements(const Team& team, bool aligned,
                                     const float* values, T* to) {
  bool quads = aligned;
  if constexpr (sizeof(T) == 2) {
    for (int i = 0; i < Team::kElements; ++i) quads &= values[i] == values[i];
  }
  ForElements(
      team, quads, [=](int i, int j) { RoundQuad(values + i, to + j); },
      [=](int i, int j) { RoundTo(values[i], to + j); });
}

// ---- Residuals of a block, float32, bfloat16 or int8
// -------------------------

__device__ inline void LoadResidual(const Team& team, bool aligned, DType dtype,
                                    const void* from, float* values) {
  if (dtype == DType::kFloat) {
    LoadElements(team, aligned, static_cast<const float*>(from), values);
  } else if (dtype == DType::kBFloat16) {
    LoadElements(team, aligned, static_cast<const BFloat16*>(from), values);
  } else {
    const auto* block = static_cast<const EightBitResiduals*>(from);
    for (int i = 0; i < Team::kElements; ++i) {
      const int j = Team::Index(team.lane, i);
      values[i] = team.Inside(i) ? block->scale * block->whole[j] : 0.0f;
    }
  }
}

// `to` is null where nothing is kept.
__device__ inline void StoreResidual(const Team& team, bool aligned,
                                     DType dtype, float* values, void* to) {
  const bool in_blocks = to != nullptr && dtype == DType::kInt8;
  if (!team.AllTeams(!in_blocks)) {
    for (int i = 0; i < Team::kElements; ++i) {
      if (!team.Inside(i)) values[i] = 0.0f;
    }
    const float scale = WholeScale(LargestFinite<true>(team, values));
    if (in_blocks && team.size > 0) {
      auto* block = static_cast<EightBitResiduals*>(to);
      const float factor = EightBitFactor(scale);
      for (int i = 0; i < Team::kElements; ++i) {
        block->whole[Team::Index(team.lane, i)] = WholeOf(values[i], factor);
      }
      if (team.lane == 0) block->scale = scale;
    }
  }
  if (to == nullptr || in_blocks) return;
  if (dtype == DType::kFloat) {
    StoreElements(team, aligned, values, static_cast<float*>(to));
  } else {
    RoundElements(team, aligned, values, static_cast<BFloat16*>(to));
  }
}

// Copies the bits, which to load and store would change in blocks.
__device__ inline void CopyResidual(const Team& team, DType dtype,
                                    const char* from, char* to) {
  const int64_t bytes = ResidualBytes(dtype, team.size);
  for (int64_t i = team.lane; i < bytes; i += Team::kLanes) to[i] = from[i];
}

}  // namespace tf_gc::gpu
