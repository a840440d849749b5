// NEON for functions.inc: 4 states of the coder in a register. Include after
// <arm_neon.h>; everything here is local to the file that includes it.

#pragma once

namespace tf_gc::neon {
namespace {

using States = uint32x4_t;
using CodingEntries = const uint32_t*;
constexpr int kWidth = 4;

// For each set of lanes, where the bytes of words in the low halves of the
// lanes go if these are moved to the lowest places, and which of the lowest
// words go to the lanes.
struct LaneMoves {
  alignas(8) uint8_t down[16][8];
  alignas(16) uint8_t up[16][16];

  constexpr LaneMoves() : down(), up() {
    for (int set = 0; set < 16; ++set) {
      int place = 0;
      for (int lane = 0; lane < 4; ++lane) {
        for (int i = 0; i < 4; ++i) up[set][4 * lane + i] = 0xff;  // zero
        if ((set >> lane & 1) == 0) continue;
        for (int i = 0; i < 2; ++i) {
          down[set][place + i] = static_cast<uint8_t>(4 * lane + i);
          up[set][4 * lane + i] = static_cast<uint8_t>(place + i);
        }
        place += 2;
      }
    }
  }
};
constexpr LaneMoves kLaneMoves;

inline States LoadStates(const uint32_t* from) { return vld1q_u32(from); }
inline void StoreStates(States x, uint32_t* to) { vst1q_u32(to, x); }

inline uint32x4_t LowBits(uint32x4_t v) {
  return vandq_u32(v, vdupq_n_u32(kFrequencySum - 1));
}

// `index` has the number of the entry for each lane.
template <typename Index>
inline uint32x4_t LookUp(const uint32_t* entries, Index index) {
  uint32x4_t found = vld1q_dup_u32(entries + index(0));
  found = vld1q_lane_u32(entries + index(1), found, 1);
  found = vld1q_lane_u32(entries + index(2), found, 2);
  return vld1q_lane_u32(entries + index(3), found, 3);
}

// A bit for each of the four lanes, and above these bits how many are set.
inline uint32_t Lanes(uint32x4_t all_or_nothing) {
  const uint32x4_t own = {0x11, 0x12, 0x14, 0x18};
  return vaddvq_u32(vandq_u32(all_or_nothing, own));
}

inline int CodeStates(CodingEntries entries, const uint8_t* symbols, States* x,
                      uint16_t* words) {
  const uint32x4_t entry =
      LookUp(entries, [=](int lane) { return symbols[lane]; });
  const uint32x4_t frequency = LowBits(entry);
  const uint32x4_t start = vshrq_n_u32(entry, kFrequencyBits);
  const uint32x4_t full =
      vcgeq_u32(*x, vshlq_n_u32(frequency, 32 - kFrequencyBits));
  const uint32_t lanes = Lanes(full);
  vst1_u8(reinterpret_cast<uint8_t*>(words),
          vqtbl1_u8(vreinterpretq_u8_u32(*x),
                    vld1_u8(kLaneMoves.down[lanes % 16])));
  const uint32x4_t y = vbslq_u32(full, vshrq_n_u32(*x, 16), *x);
  // The quotient is below 2^20. A reciprocal that is too small by 2^-21, more
  // than all roundings together, makes it right or one too small.
  const float32x4_t reciprocal =
      vdivq_f32(vdupq_n_f32(1.0f - 0x1p-21f), vcvtq_f32_u32(frequency));
  const uint32x4_t quotient =
      vcvtq_u32_f32(vmulq_f32(vcvtq_f32_u32(y), reciprocal));
  const uint32x4_t rest = vmlsq_u32(y, quotient, frequency);
  const uint32x4_t next =
      vaddq_u32(vaddq_u32(vshlq_n_u32(quotient, kFrequencyBits), start), rest);
  const uint32x4_t others = vsubq_u32(vdupq_n_u32(kFrequencySum), frequency);
  *x = vaddq_u32(next, vandq_u32(vcgeq_u32(rest, frequency), others));
  return static_cast<int>(lanes / 16);
}

inline uint32_t DecodeStates(const uint32_t* entries, States* x,
                             uint8_t* symbols) {
  const uint32x4_t index = LowBits(*x);
  const uint32x4_t entry =
      LookUp(entries, [=](int lane) { return index[lane]; });
  const uint32x2_t lowest_bytes = vreinterpret_u32_u8(
      vqtbl1_u8(vreinterpretq_u8_u32(entry), vcreate_u8(0x0c080400)));
  const uint32_t bytes = vget_lane_u32(lowest_bytes, 0);
  std::memcpy(symbols, &bytes, sizeof bytes);
  const uint32x4_t frequency = LowBits(vshrq_n_u32(entry, 8));
  const uint32x4_t distance = vshrq_n_u32(entry, 8 + kFrequencyBits);
  *x = vmlaq_u32(distance, frequency, vshrq_n_u32(*x, kFrequencyBits));
  return Lanes(vcltq_u32(*x, vdupq_n_u32(kLowestState))) % 16;
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(words));
  const uint32x4_t word = vreinterpretq_u32_u8(
      vqtbl1q_u8(vcombine_u8(bytes, bytes), vld1q_u8(kLaneMoves.up[take])));
  const uint32x4_t low = vcltq_u32(*x, vdupq_n_u32(kLowestState));
  *x = vbslq_u32(low, vorrq_u32(vshlq_n_u32(*x, 16), word), *x);
}

// As in planes_avx2.inc.
inline void TakePlanes(const uint8_t* codes, uint64_t* planes) {
  const uint8x16_t first_two = {0x00, 0x10, 0x01, 0x11, 0x20, 0x30, 0x21, 0x31,
                                0x02, 0x12, 0x03, 0x13, 0x22, 0x32, 0x23, 0x33};
  const uint8x16_t last_two = vshlq_n_u8(first_two, 2);
  const auto both = [&](const uint8_t* from) {
    const uint8x16_t bits = vld1q_u8(from);
    return vorrq_u8(vqtbl1q_u8(first_two, vandq_u8(bits, vdupq_n_u8(15))),
                    vqtbl1q_u8(last_two, vshrq_n_u8(bits, 4)));
  };
  const uint8x16_t low = both(codes);
  const uint8x16_t high = both(codes + 16);
  const uint8x16_t even = vuzp1q_u8(low, high);
  const uint8x16_t odd = vuzp2q_u8(low, high);
  uint8_t* const to = reinterpret_cast<uint8_t*>(planes);
  vst1q_u8(to, vsliq_n_u8(even, odd, 4));
  vst1q_u8(to + 16, vsriq_n_u8(odd, even, 4));
}

inline void PutPlanes(const uint64_t* planes, uint8_t* codes) {
  const uint8x16_t of_signs = {0x00, 0x01, 0x04, 0x05, 0x10, 0x11, 0x14, 0x15,
                               0x40, 0x41, 0x44, 0x45, 0x50, 0x51, 0x54, 0x55};
  const uint8x16_t of_magnitudes = vshlq_n_u8(of_signs, 1);
  const uint8_t* const from = reinterpret_cast<const uint8_t*>(planes);
  const uint8x16_t magnitudes = vld1q_u8(from);
  const uint8x16_t signs = vld1q_u8(from + 16);
  const uint8x16_t half = vdupq_n_u8(15);
  const uint8x16_t even =
      vorrq_u8(vqtbl1q_u8(of_magnitudes, vandq_u8(magnitudes, half)),
               vqtbl1q_u8(of_signs, vandq_u8(signs, half)));
  const uint8x16_t odd =
      vorrq_u8(vqtbl1q_u8(of_magnitudes, vshrq_n_u8(magnitudes, 4)),
               vqtbl1q_u8(of_signs, vshrq_n_u8(signs, 4)));
  vst1q_u8(codes, vzip1q_u8(even, odd));
  vst1q_u8(codes + 16, vzip2q_u8(even, odd));
}

}  // namespace
}  // namespace tf_gc::neon
