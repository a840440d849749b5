// Runs the kernels' tests on the CPU.

#include <cstdio>

#include "tests/gpu/tests.h"

int main() {
  tf_gc::gpu::TestErrors();
  tf_gc::gpu::TestParity(/*large=*/false);
  std::puts("ok");
}
