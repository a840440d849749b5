// The floating-point mode of the thread while the codecs run.

#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace tf_gc {

// The control register, 0 where it is not known.
inline uint64_t FloatMode() {
#if defined(__SSE2__)
  return _mm_getcsr();
#elif defined(__aarch64__) && defined(__GNUC__)
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
  return 0;
#endif
}

inline void SetFloatMode(uint64_t mode) {
#if defined(__SSE2__)
  _mm_setcsr(static_cast<uint32_t>(mode));
#elif defined(__aarch64__) && defined(__GNUC__)
  asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#else
  (void)mode;
#endif
}

// Rounds to nearest even and keeps subnormal numbers until it goes out of
// scope. TensorFlow's thread pools flush them to zero and the threads that call
// it do not: without this a result would depend on the thread it was computed
// in.
class ScopedExactFloatMode {
 public:
  ScopedExactFloatMode() : saved_(FloatMode()) { SetFloatMode(kExact); }
  ~ScopedExactFloatMode() { SetFloatMode(saved_); }
  ScopedExactFloatMode(const ScopedExactFloatMode&) = delete;
  ScopedExactFloatMode& operator=(const ScopedExactFloatMode&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr uint64_t kExact = 0x1f80;  // all exceptions masked
#else
  static constexpr uint64_t kExact = 0;
#endif
  const uint64_t saved_;
};

}  // namespace tf_gc
