// Tests the GPU kernels on a GPU:
//
//   test_gpu          all tests
//   test_gpu --small  those that are quick enough under compute-sanitizer
//   test_gpu --json   prints throughput, tests nothing

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "tests/gpu/tests.h"

int main(int count, char** arguments) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no GPU to test on: %s\n", cudaGetErrorString(error));
    return 1;
  }
  const char* mode = count > 1 ? arguments[1] : "";
  if (std::strcmp(mode, "--json") == 0) {
    tf_gc::gpu::MeasureThroughput(stdout);
    return 0;
  }
  const bool small = std::strcmp(mode, "--small") == 0;
  tf_gc::gpu::TestErrors();
  tf_gc::gpu::TestGraph();
  tf_gc::gpu::TestParity(/*large=*/!small);
  if (!small) tf_gc::gpu::TestNumbers();
  std::puts("the GPU's results are the same as the CPU's");
}
