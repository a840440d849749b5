// Calls the library on Arm for test_arm.py, which runs on x86: it reads calls
// from stdin, and writes results to stdout. Arrays are in memory that both
// have.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <type_traits>

#include "custom_ops/lib/low_rank/factors.h"
#include "custom_ops/lib/numbers/floats.h"

// Low rank, which c_api.h lacks: P = M Q, then the next Q and the residual by
// `basis`, then their product.
extern "C" int tf_gc_factors(int dtype, const tf_gc::FactoredMatrix* matrix,
                             const void* gradient, float* residual,
                             const float* q, float* p, const float* basis,
                             float* next_q, void* product) {
  return tf_gc::ForType(static_cast<tf_gc::DType>(dtype), 0, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* const m = static_cast<const T*>(gradient);
    ProjectMatrix(*matrix, 0, matrix->rows, m, residual, q, p);
    EncodeMatrix(*matrix, 0, matrix->columns, m, residual, residual, basis,
                 next_q);
    MultiplyFactors(*matrix, 0, matrix->rows, basis, next_q,
                    static_cast<T*>(product));
    return 1;
  });
}

// A call of any function of c_api.h: an integer or a pointer goes to the next
// of eight registers or 64 bits of the stack, and a float to a register apart.
struct Call {
  char name[32];
  int64_t words[14];
  float real;
};
using Word = int64_t;
using Function = Word(Word, Word, Word, Word, Word, Word, Word, Word, Word,
                      Word, Word, Word, Word, Word, float);

int main(int, char** argv) {
  // As in test_arm.py.
  mmap(reinterpret_cast<void*>(int64_t{1} << 36), int64_t{1} << 30,
       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, open(argv[1], O_RDWR),
       0);
  Call call;
  while (std::fread(&call, sizeof call, 1, stdin) == 1) {
    const auto function =
        reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, call.name));
    const Word* const w = call.words;
    const Word result =
        function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9],
                 w[10], w[11], w[12], w[13], call.real);
    std::fwrite(&result, sizeof result, 1, stdout);
    std::fflush(stdout);
  }
}
