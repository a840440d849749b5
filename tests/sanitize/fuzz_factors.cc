// Fuzz target of factors.h: ranges that are split anywhere, residuals in place
// or not, and numbers of any bits give the same for all targets.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "custom_ops/lib/low_rank/factors.h"
#include "tests/sanitize/check.h"
#include "tests/sanitize/fuzz_parts.h"

namespace tf_gc {
namespace {

template <typename T>
void Append(const Array<T>& array, std::vector<uint8_t>* to) {
  const std::vector<uint8_t> bytes = array.Bytes();
  to->insert(to->end(), bytes.begin(), bytes.end());
}

template <typename T>
void FuzzFactorsOf(Input* input) {
  FactoredMatrix matrix;
  matrix.rows = 1 + input->Below(input->Coin() ? 8 : 70);
  matrix.columns = 1 + input->Below(input->Coin() ? 20 : 150);
  matrix.rank = 1 + static_cast<int>(input->Below(input->Coin() ? 3 : 9));
  const bool sends_p = input->Coin();
  const bool in_place = input->Coin();
  const int64_t elements = matrix.rows * matrix.columns;
  const int64_t kept = sends_p ? matrix.columns : matrix.rows;
  const int64_t sent = sends_p ? matrix.rows : matrix.columns;
  const int64_t split = input->Below(sent + 1);

  Array<T> gradient(elements, input->Below(4));
  Array<float> residual(elements, input->Below(4));
  Array<float> basis(matrix.rank * kept, input->Below(4));
  input->Fill(gradient.data(), elements * sizeof(T));
  // Random bits are mostly numbers too large for a residual.
  for (int64_t i = 0; i < elements; ++i) {
    residual[i] = static_cast<float>(input->Below(1000)) - 500;
  }
  for (int64_t i = 0; i < basis.size(); ++i) {
    basis[i] = static_cast<float>(input->Below(100)) - 50;
  }
  MakeOrthonormal(kept, matrix.rank, basis.data());
  if (input->Coin()) {
    for (int64_t i = 0; i < elements; ++i) {
      RoundTo(static_cast<float>(input->Below(100)) - 50, gradient.data() + i);
    }
  }

  SameForAllTargets([&] {
    Array<float> before(elements);
    Array<float> other(elements);
    before.CopyFrom(residual);
    Array<float>& after = in_place ? before : other;
    Array<float> factor(matrix.rank * sent);
    for (const auto& [first, last] :
         {std::pair{split, sent}, {int64_t{0}, split}}) {
      if (sends_p) {
        EncodeP(matrix, first, last, gradient.data(), before.data(),
                after.data(), basis.data(), factor.data());
      } else {
        EncodeQ(matrix, first, last, gradient.data(), before.data(),
                after.data(), basis.data(), factor.data());
      }
    }
    Array<T> product(elements);
    const int64_t half = matrix.rows / 2;
    for (const auto& [first, last] :
         {std::pair{half, matrix.rows}, {int64_t{0}, half}}) {
      MultiplyFactors(matrix, first, last,
                      sends_p ? factor.data() : basis.data(),
                      sends_p ? basis.data() : factor.data(), product.data());
    }
    std::vector<uint8_t> result;
    Append(factor, &result);
    Append(after, &result);
    Append(product, &result);
    if (std::all_of(factor.data(), factor.data() + factor.size(),
                    [](float x) { return x - x == 0; })) {
      MakeOrthonormal(sent, matrix.rank, factor.data());
      Append(factor, &result);
    }
    return result;
  });
}

}  // namespace

void FuzzFactors(Input* input) {
  switch (input->Below(3)) {
    case 0:
      return FuzzFactorsOf<float>(input);
    case 1:
      return FuzzFactorsOf<Half>(input);
    default:
      return FuzzFactorsOf<BFloat16>(input);
  }
}

}  // namespace tf_gc
