// The functions of factors.h for every processor.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/low_rank/factors.h"
#include "custom_ops/lib/numbers/floats.h"

namespace tf_gc {
namespace scalar {
namespace {

constexpr int kLanes = 16;
constexpr int kVecsPerSum = 4;

struct Vec {
  float lanes[kLanes];
};

template <typename Function>
inline Vec ForLanes(Function function) {
  Vec result;
  for (int i = 0; i < kLanes; ++i) result.lanes[i] = function(i);
  return result;
}

inline Vec Set(float x) {
  return ForLanes([=](int) { return x; });
}
inline Vec Add(const Vec& a, const Vec& b) {
  return ForLanes([&](int i) { return a.lanes[i] + b.lanes[i]; });
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return ForLanes([&](int i) { return a.lanes[i] * b.lanes[i]; });
}
inline Vec Abs(const Vec& v) {
  return ForLanes([&](int i) { return std::fabs(v.lanes[i]); });
}

struct Mask {
  bool lanes[kLanes];
};
inline Mask Greater(const Vec& a, const Vec& b) {
  Mask result;
  for (int i = 0; i < kLanes; ++i) result.lanes[i] = a.lanes[i] > b.lanes[i];
  return result;
}
inline Vec Select(const Mask& mask, const Vec& a, const Vec& b) {
  return ForLanes(
      [&](int i) { return mask.lanes[i] ? a.lanes[i] : b.lanes[i]; });
}

template <typename T>
inline Vec Load(const T* from) {
  return ForLanes([=](int i) { return ToFloat(from[i]); });
}
inline void Store(const Vec& v, float* to) {
  std::memcpy(to, v.lanes, sizeof(v.lanes));
}
template <typename T>
inline void RoundTo(const Vec& v, T* to) {
  for (int i = 0; i < kLanes; ++i) tf_gc::RoundTo(v.lanes[i], to + i);
}
// In the order of TreeSum (codec/block.h).
inline float SumLanes(Vec v) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v.lanes[i] += v.lanes[i + step];
  }
  return v.lanes[0];
}

}  // namespace

#include "custom_ops/lib/low_rank/factors_simd.inc"

}  // namespace scalar

TF_GC_DEFINE_TABLE(FactorFunctions, ScalarFactorFunctions, scalar::kFunctions);

}  // namespace tf_gc
