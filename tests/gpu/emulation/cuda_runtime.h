// As much of CUDA as the kernels and their tests need, on the CPU: a lane is a
// fiber, the lanes of a warp meet at each of the functions that exchange
// values, and those of a thread block at its barriers. Slow, and exact: what it
// does not show is speed, all races between warps, and what the compiler for
// the GPU makes of the code.

#ifndef TF_GC_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_
#define TF_GC_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __shared__ static  // One thread block runs at a time.
#define __launch_bounds__(...)
#define CUDART_VERSION 13000

struct CUstream_st;
using cudaStream_t = CUstream_st*;

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMisalignedAddress = 716,
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

struct dim3 {
  explicit dim3(unsigned size) : x(size) {}
  unsigned x;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

struct EmulatedIndex {
  unsigned x = 0;
};
inline EmulatedIndex threadIdx;
inline EmulatedIndex blockIdx;
inline EmulatedIndex gridDim;

// The lanes of a thread block, one of which runs.
class EmulatedBlock {
 public:
  static constexpr int kWarp = 32;

  // Runs `body` in `threads` lanes, a multiple of kWarp.
  void Run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    barriers_ = 0;
    any_[0] = false;
    lanes_.resize(threads);
    for (Lane& lane : lanes_) {
      // AddressSanitizer clears its notes on all of it with each switch.
      if (lane.stack.empty()) lane.stack.resize(32 << 10);
      lane.meetings = 0;
      lane.barriers = 0;
      lane.done = false;
      getcontext(&lane.context);
      lane.context.uc_stack.ss_sp = lane.stack.data();
      lane.context.uc_stack.ss_size = lane.stack.size();
      lane.context.uc_link = &main_;
      makecontext(&lane.context, &EmulatedBlock::Enter, 0);
    }
    for (;;) {
      bool waiting = false;
      // The first warp goes first or last, as a random number says: a barrier
      // that is missing shows.
      random_ = random_ * 1664525u + 1013904223u;
      const bool backwards = random_ >> 31 != 0;
      for (unsigned first = 0; first < threads; first += kWarp) {
        if (RunWarp(backwards ? threads - kWarp - first : first)) {
          waiting = true;
        }
      }
      if (!waiting) break;
      any_[++barriers_ % 2] = false;
    }
  }

  // Gives `value` to the other lanes of the warp, and all of the warp's values
  // once they are here.
  const uint64_t* Meet(uint64_t value) {
    Lane& lane = lanes_[running_];
    uint64_t* values = values_[lane.meetings++ % 2];
    values[running_ % kWarp] = value;
    swapcontext(&lane.context, &main_);
    const unsigned first = running_ - running_ % kWarp;
    for (unsigned i = first; i < first + kWarp; ++i) {
      // Those before this lane may be at the next meeting already.
      const int ahead = lanes_[i].meetings - lane.meetings;
      if (ahead < 0 || ahead > 1) {
        std::fprintf(stderr, "lanes of a warp do not meet\n");
        std::abort();
      }
    }
    return values;
  }

  // Waits for all lanes. Returns whether any of them came with `condition`.
  bool Wait(bool condition) {
    Lane& lane = lanes_[running_];
    bool& any = any_[lane.barriers++ % 2];
    any = any || condition;
    swapcontext(&lane.context, &main_);
    return any;
  }

  int lane() const { return static_cast<int>(running_ % kWarp); }

  static EmulatedBlock& Current() {
    static EmulatedBlock block;
    return block;
  }

 private:
  struct Lane {
    ucontext_t context;
    std::vector<char> stack;
    int meetings;
    int barriers;
    bool done;
  };

  // Runs a warp until its lanes are done or at the next barrier. Returns
  // whether one is at a barrier.
  bool RunWarp(unsigned first) {
    bool waiting = false;
    for (bool any = true; any;) {
      any = waiting = false;
      for (running_ = first; running_ < first + kWarp; ++running_) {
        Lane& lane = lanes_[running_];
        if (lane.done) continue;
        if (lane.barriers > barriers_) {
          waiting = true;
          continue;
        }
        threadIdx.x = running_;
        swapcontext(&main_, &lane.context);
        any = true;
      }
    }
    return waiting;
  }

  static void Enter() {
    EmulatedBlock& block = Current();
    (*block.body_)();
    block.lanes_[block.running_].done = true;
  }

  std::vector<Lane> lanes_;
  ucontext_t main_;
  const std::function<void()>* body_;
  unsigned running_;
  int barriers_;  // that all lanes have come to
  uint64_t values_[2][kWarp];
  bool any_[2];
  uint32_t random_ = 0;
};

// The value that a lane has from another one.
template <typename T>
T EmulatedShuffle(T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = EmulatedBlock::Current().Meet(bits)[from];
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return EmulatedShuffle(value, EmulatedBlock::Current().lane() ^ mask);
}

template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned distance) {
  const int lane = EmulatedBlock::Current().lane();
  const int from = lane - static_cast<int>(distance);
  return EmulatedShuffle(value, from < 0 ? lane : from);
}

inline unsigned __ballot_sync(unsigned, int condition) {
  const uint64_t* values = EmulatedBlock::Current().Meet(condition != 0);
  unsigned lanes = 0;
  for (int i = 0; i < EmulatedBlock::kWarp; ++i) {
    lanes |= static_cast<unsigned>(values[i]) << i;
  }
  return lanes;
}

inline int __any_sync(unsigned mask, int condition) {
  return __ballot_sync(mask, condition) != 0;
}

inline int __all_sync(unsigned mask, int condition) {
  return __ballot_sync(mask, condition) == ~0u;
}

inline void __syncthreads() { EmulatedBlock::Current().Wait(false); }

inline int __syncthreads_or(int condition) {
  return EmulatedBlock::Current().Wait(condition != 0);
}

template <typename T>
T atomicAdd(T* to, T value) {
  const T old = *to;
  *to += value;
  return old;
}

inline unsigned atomicOr(unsigned* to, unsigned value) {
  const unsigned old = *to;
  *to |= value;
  return old;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) {
  return __builtin_popcountll(bits);
}

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned chosen = selector >> 4 * i & 7u;
    result |= static_cast<unsigned>(bytes >> 8 * chosen & 0xffu) << 8 * i;
  }
  return result;
}

template <typename Params>
cudaError_t cudaLaunchKernel(void (*kernel)(Params), dim3 grid, dim3 block,
                             void** arguments, size_t, cudaStream_t) {
  const Params& params = *static_cast<const Params*>(arguments[0]);
  const std::function<void()> body = [&] { kernel(params); };
  gridDim.x = grid.x;
  for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
    EmulatedBlock::Current().Run(block.x, body);
  }
  return cudaSuccess;
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
// So few that kernels take several turns.
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error";
}
inline cudaError_t cudaMalloc(void** memory, size_t size) {
  // Not aligned_alloc(), which may take more than `size`.
  if (posix_memalign(memory, 256, size) != 0) std::abort();
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size,
                              cudaMemcpyKind) {
  if (size > 0) std::memcpy(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int byte, size_t size,
                                   cudaStream_t) {
  std::memset(memory, byte, size);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

#endif  // TF_GC_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_
