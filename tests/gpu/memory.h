// Device memory for tests.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace tf_gc::gpu {

// Ends the program with a message if `error` is one.
inline void Check(int error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what,
               cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::exit(1);
}

// An array on the device between guard bytes that must stay as they are.
template <typename T>
class Array {
 public:
  // The array starts at a multiple of 256 bytes and `shift` elements, and holds
  // the byte 0xEE if it is not filled.
  explicit Array(size_t size, size_t shift = 0)
      : size_(size), before_(kGuard + shift * sizeof(T)) {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, before_ + size_ * sizeof(T) + kGuard),
          "cudaMalloc");
    memory_ = static_cast<uint8_t*>(memory);
    Write(nullptr);
  }
  explicit Array(const std::vector<T>& values, size_t shift = 0)
      : Array(values.size(), shift) {
    Write(values.data());
  }
  Array(Array&& other) noexcept
      : size_(other.size_),
        before_(other.before_),
        memory_(std::exchange(other.memory_, nullptr)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(memory_); }

  T* data() const { return reinterpret_cast<T*>(memory_ + before_); }

  // The values in the array now. Ends the program if a guard byte has changed.
  std::vector<T> Read() const {
    std::vector<uint8_t> bytes(before_ + size_ * sizeof(T) + kGuard);
    Check(
        cudaMemcpy(bytes.data(), memory_, bytes.size(), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool inside = i >= before_ && i < before_ + size_ * sizeof(T);
      if (inside || bytes[i] == kGuardByte) continue;
      std::fprintf(stderr, "byte %zu of an array of %zu is overwritten\n",
                   i - before_, size_ * sizeof(T));
      std::exit(1);
    }
    std::vector<T> values(size_);
    if (size_ > 0) {
      std::memcpy(values.data(), bytes.data() + before_, size_ * sizeof(T));
    }
    return values;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kGuardByte = 0xa5;

  void Write(const T* values) const {
    std::vector<uint8_t> bytes(before_ + size_ * sizeof(T) + kGuard,
                               kGuardByte);
    if (size_ > 0) {
      uint8_t* inside = bytes.data() + before_;
      std::memset(inside, 0xee, size_ * sizeof(T));
      if (values != nullptr) std::memcpy(inside, values, size_ * sizeof(T));
    }
    Check(
        cudaMemcpy(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }

  size_t size_;
  size_t before_;  // bytes
  uint8_t* memory_;
};

}  // namespace tf_gc::gpu
