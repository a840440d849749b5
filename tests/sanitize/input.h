// The fuzzer's bytes, from which the fuzz target reads its case, and the arrays
// that it gives to the library.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace tf_gc {

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
// `shift` elements after its start.
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
  T& operator[](int64_t i) const { return data_[i]; }
  void CopyFrom(const Array& other) { memcpy(data_, other.data_, bytes()); }
  std::vector<uint8_t> Bytes() const {
    const uint8_t* first = reinterpret_cast<const uint8_t*>(data_);
    return std::vector<uint8_t>(first, first + bytes());
  }

 private:
  size_t bytes() const { return size_ * sizeof(T); }

  int64_t size_;
  std::unique_ptr<uint8_t[]> memory_;
  T* data_;
};

}  // namespace tf_gc
