// Fuzz target of factors.h: ranges that are split anywhere, residuals in place
// or not, and numbers of any bits give the same for all targets.

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
  // Of the largest, several rows are encoded together.
  matrix.rank = 1 + static_cast<int>(input->Below(input->Coin() ? 3 : 40));
  const bool in_place = input->Coin();
  const int64_t elements = matrix.rows * matrix.columns;
  const int64_t row = input->Below(matrix.rows + 1);
  const int64_t column = input->Below(matrix.columns + 1);

  Array<T> gradient(elements, input->Below(4));
  Array<float> residual(elements, input->Below(4));
  Array<float> start(matrix.rank * matrix.columns, input->Below(4));
  input->Fill(gradient.data(), elements * sizeof(T));
  // Random bits are mostly numbers too large for a residual.
  for (int64_t i = 0; i < elements; ++i) {
    residual[i] = static_cast<float>(input->Below(1000)) - 500;
  }
  for (int64_t i = 0; i < start.size(); ++i) {
    start[i] = static_cast<float>(input->Below(100)) - 50;
  }
  if (input->Coin()) {
    for (int64_t i = 0; i < elements; ++i) {
      RoundTo(static_cast<float>(input->Below(100)) - 50, gradient.data() + i);
    }
  }

  SameForAllTargets([&] {
    Array<float> basis(start.size());
    basis.CopyFrom(start);
    MakeOrthonormal(matrix.columns, matrix.rank, basis.data());
    Array<float> before(elements);
    Array<float> other(elements);
    before.CopyFrom(residual);
    Array<float>& after = in_place ? before : other;
    Array<float> p(matrix.rank * matrix.rows);
    Array<float> q(matrix.rank * matrix.columns);
    Array<T> product(elements);
    for (const auto& [first, last] :
         {std::pair{row, matrix.rows}, {int64_t{0}, row}}) {
      ProjectMatrix(matrix, first, last, gradient.data(), before.data(),
                    basis.data(), p.data());
    }
    std::vector<uint8_t> result;
    Append(p, &result);
    MakeOrthonormal(matrix.rows, matrix.rank, p.data());
    for (const auto& [first, last] :
         {std::pair{column, matrix.columns}, {int64_t{0}, column}}) {
      EncodeMatrix(matrix, first, last, gradient.data(), before.data(),
                   after.data(), p.data(), q.data());
    }
    for (const auto& [first, last] :
         {std::pair{row, matrix.rows}, {int64_t{0}, row}}) {
      MultiplyFactors(matrix, first, last, p.data(), q.data(), product.data());
    }
    Append(p, &result);
    Append(q, &result);
    Append(after, &result);
    Append(product, &result);
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
