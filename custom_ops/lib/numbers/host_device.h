// For functions that nvcc compiles for a GPU and the host's compiler for the
// CPU.

#pragma once

// Before functions for CUDA's host and device code.
#if defined(__CUDACC__)
#define TF_GC_HOST_DEVICE __host__ __device__
#else
#define TF_GC_HOST_DEVICE
#endif

namespace tf_gc {

// Ends the program, or the CUDA kernel, at a value that no caller may pass.
[[noreturn]] TF_GC_HOST_DEVICE inline void Trap() {
#if defined(__CUDA_ARCH__)
  __trap();
  __builtin_unreachable();
#else
  __builtin_trap();
#endif
}

}  // namespace tf_gc
