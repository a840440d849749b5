// Fuzz target of factors.h: ranges that are split anywhere, residuals in place
// or not, and numbers of any bits.

#include <utility>

#include "custom_ops/lib/low_rank/factors.h"
#include "tests/sanitize/fuzz.h"

namespace tf_gc {
namespace {

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
  gradient.Fill(input);
  // Random bits are mostly numbers too large for a residual.
  const auto fill = [&](const auto& array, int64_t limit) {
    for (int64_t i = 0; i < array.size(); ++i) {
      RoundTo(static_cast<float>(input->Below(2 * limit) - limit), &array[i]);
    }
  };
  fill(residual, 500);
  fill(start, 50);
  if (input->Coin()) fill(gradient, 50);

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
    const auto row_ranges = {std::pair{row, matrix.rows}, {int64_t{0}, row}};
    for (const auto& [first, last] : row_ranges) {
      ProjectMatrix(matrix, first, last, gradient.data(), before.data(),
                    basis.data(), p.data());
    }
    Array<float> projected(p.size());
    projected.CopyFrom(p);
    MakeOrthonormal(matrix.rows, matrix.rank, p.data());
    for (const auto& [first, last] :
         {std::pair{column, matrix.columns}, {int64_t{0}, column}}) {
      EncodeMatrix(matrix, first, last, gradient.data(), before.data(),
                   after.data(), p.data(), q.data());
    }
    for (const auto& [first, last] : row_ranges) {
      MultiplyFactors(matrix, first, last, p.data(), q.data(), product.data());
    }
    return Join(projected, p, q, after, product);
  });
}

}  // namespace

void FuzzFactors(Input* input) {
  WithType(input, [&](auto type) { FuzzFactorsOf<decltype(type)>(input); });
}

}  // namespace tf_gc
