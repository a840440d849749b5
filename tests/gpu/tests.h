// The tests of the GPU kernels, and their measurement. Each ends the program
// where it fails.

#ifndef TF_GC_TESTS_GPU_TESTS_H_
#define TF_GC_TESTS_GPU_TESTS_H_

#include <cstdio>

namespace tf_gc {
namespace gpu {

// `large`: with tensors that keep a GPU busy, and take an emulation too long.
void TestParity(bool large);

void TestErrors();

// These need a real GPU.
void TestNumbers();
void TestGraph();
void MeasureThroughput(std::FILE* file);

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_TESTS_GPU_TESTS_H_
