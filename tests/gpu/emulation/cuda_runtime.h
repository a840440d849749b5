// As much of CUDA as the kernels and their tests need, on the CPU: a lane is a
// fiber, and the lanes of a warp meet at each of the functions that exchange
// values. Warps run one after the other: the kernels have no barrier and no
// shared memory. Slow, and exact: what it does not show is speed, and what the
// compiler for the GPU makes of the code.

#pragma once

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
constexpr cudaMemcpyKind cudaMemcpyDefault = cudaMemcpyHostToDevice;

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

// The lanes of a warp, one of which runs.
class EmulatedWarp {
 public:
  static constexpr unsigned kLanes = 32;

  // Runs `body` in all lanes, the first of which is the thread `first`.
  void Run(unsigned first, const std::function<void()>& body) {
    body_ = &body;
    for (Lane& lane : lanes_) {
      // AddressSanitizer clears its notes on all of it with each switch.
      if (lane.stack.empty()) lane.stack.resize(32 << 10);
      lane.meetings = 0;
      lane.done = false;
      getcontext(&lane.context);
      lane.context.uc_stack.ss_sp = lane.stack.data();
      lane.context.uc_stack.ss_size = lane.stack.size();
      lane.context.uc_link = &main_;
      makecontext(&lane.context, &EmulatedWarp::Enter, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (running_ = 0; running_ < kLanes; ++running_) {
        Lane& lane = lanes_[running_];
        if (lane.done) continue;
        threadIdx.x = first + running_;
        swapcontext(&main_, &lane.context);
        any = true;
      }
    }
  }

  // Gives `value` to the other lanes, and all of their values once they are
  // here.
  const uint64_t* Meet(uint64_t value) {
    Lane& lane = lanes_[running_];
    uint64_t* values = values_[lane.meetings++ % 2];
    values[running_] = value;
    swapcontext(&lane.context, &main_);
    for (const Lane& other : lanes_) {
      // Those before this lane may be at the next meeting already.
      const int ahead = other.meetings - lane.meetings;
      if (ahead < 0 || ahead > 1) {
        std::fprintf(stderr, "lanes of a warp do not meet\n");
        std::abort();
      }
    }
    return values;
  }

  int lane() const { return static_cast<int>(running_); }

  static EmulatedWarp& Current() {
    static EmulatedWarp warp;
    return warp;
  }

 private:
  struct Lane {
    ucontext_t context;
    std::vector<char> stack;
    int meetings;
    bool done;
  };

  static void Enter() {
    EmulatedWarp& warp = Current();
    (*warp.body_)();
    warp.lanes_[warp.running_].done = true;
  }

  Lane lanes_[kLanes];
  ucontext_t main_;
  const std::function<void()>* body_;
  unsigned running_;
  uint64_t values_[2][kLanes];
};

// The value that a lane has from another one.
template <typename T>
T EmulatedShuffle(T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = EmulatedWarp::Current().Meet(bits)[from];
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return EmulatedShuffle(value, EmulatedWarp::Current().lane() ^ mask);
}

inline unsigned __ballot_sync(unsigned, int condition) {
  const uint64_t* values = EmulatedWarp::Current().Meet(condition != 0);
  unsigned lanes = 0;
  for (unsigned i = 0; i < EmulatedWarp::kLanes; ++i) {
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
    for (unsigned first = 0; first < block.x; first += EmulatedWarp::kLanes) {
      EmulatedWarp::Current().Run(first, body);
    }
  }
  return cudaSuccess;
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
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
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                                   cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, size, kind);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
