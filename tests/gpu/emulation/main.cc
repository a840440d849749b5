// Runs the kernels' tests on the CPU.

#include <cstdio>

#include "tests/gpu/tests.h"

int main() {
  tf_gc::gpu::TestErrors();
  tf_gc::gpu::TestParity(/*large=*/false);
  tf_gc::gpu::TestCompact(/*large=*/false);
  tf_gc::gpu::TestBrokenCompact(/*large=*/false);
  std::puts("ok");
}
