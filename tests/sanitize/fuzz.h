// Shared by the parts of the fuzz target: the fuzzer's bytes, from which a
// part reads its case, the arrays that it gives to the library, and checks.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "custom_ops/lib/cpu/codec.h"

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (false)

namespace tf_gc {

using Bytes = std::vector<uint8_t>;

// Bytes of the fuzzer, followed by a sequence that they determine: a short
// input can fill large arrays.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  void Fill(void* to, size_t bytes) {
    const size_t given = std::min(bytes, left_);
    uint8_t* target = static_cast<uint8_t*>(to);
    if (given > 0) std::memcpy(target, data_, given);
    for (size_t i = 0; i < given; ++i) state_ = state_ * 31 + data_[i];
    data_ += given;
    left_ -= given;
    for (size_t i = given; i < bytes; i += sizeof(uint64_t)) {
      const uint64_t word = Next();
      std::memcpy(target + i, &word, std::min(bytes - i, sizeof(word)));
    }
  }

  template <typename T>
  T Value() {
    T value;
    Fill(&value, sizeof(value));
    return value;
  }

  // In [0, limit).
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Value<uint32_t>() %
                                static_cast<uint64_t>(limit));
  }

  bool Coin() { return Value<uint8_t>() & 1; }

  template <typename T, size_t kCount>
  T OneOf(const T (&values)[kCount]) {
    return values[Below(kCount)];
  }

  // Numbers of any size, many of them beside a power of two.
  int64_t Hostile() {
    const uint64_t number = Value<uint64_t>();
    if (Coin()) return static_cast<int64_t>(number >> Below(64));
    return static_cast<int64_t>((uint64_t{1} << Below(64)) + number % 261 -
                                130);
  }

 private:
  uint64_t Next() {  // xorshift64
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

  const uint8_t* data_;
  size_t left_;
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

// An array on the heap that ends where its allocation ends, and starts
// `shift` elements after its start: AddressSanitizer sees one byte too many.
template <typename T>
class Array {
 public:
  explicit Array(int64_t size, int64_t shift = 0)
      : size_(size), memory_(new uint8_t[(shift + size) * sizeof(T)]) {
    data_ = reinterpret_cast<T*>(memory_.get()) + shift;
    memset(memory_.get(), 0xa5, (shift + size) * sizeof(T));
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * sizeof(T); }
  T& operator[](int64_t i) const { return data_[i]; }
  void CopyFrom(const Array& other) { memcpy(data_, other.data_, bytes()); }
  void Fill(Input* input) const { input->Fill(data_, bytes()); }
  Bytes Bits() const {
    const uint8_t* first = reinterpret_cast<const uint8_t*>(data_);
    return Bytes(first, first + bytes());
  }

 private:
  int64_t size_;
  std::unique_ptr<uint8_t[]> memory_;
  T* data_;
};

// The bits of arrays, one after the other.
template <typename... Arrays>
Bytes Join(const Arrays&... arrays) {
  Bytes all;
  for (const Bytes& bits : {arrays.Bits()...}) {
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

// Calls run(), which returns the bytes that it computed, with each target.
// They must equal the scalar one's, which makes them defined for every input.
template <typename Run>
void SameForAllTargets(Run run) {
  CHECK(ForceTarget(Target::kScalar));
  const Bytes expected = run();
  for (Target target : {Target::kAvx2, Target::kAvx512}) {
    if (ForceTarget(target)) CHECK(run() == expected);
  }
}

// Calls fuzz(T()) for one of the types that gradients have.
template <typename Fuzz>
void WithType(Input* input, Fuzz fuzz) {
  switch (input->Below(3)) {
    case 0:
      return fuzz(float());
    case 1:
      return fuzz(Half());
    default:
      return fuzz(BFloat16());
  }
}

void DecodePastTheCaches();
void FuzzSizes(Input* input);
void FuzzCodec(Input* input);
void FuzzCompact(Input* input);
void FuzzRows(Input* input);
void FuzzFactors(Input* input);

}  // namespace tf_gc
