// The tests of the GPU kernels, and their measurement. Each ends the program
// where it fails.

#pragma once

#include <cstdio>

namespace tf_gc::gpu {

// `large`: with tensors that keep a GPU busy, and take an emulation too long.
void TestParity(bool large);

void TestErrors();

// These need a real GPU.
void TestNumbers();
void TestGraph();
void MeasureThroughput(std::FILE* file);

}  // namespace tf_gc::gpu
