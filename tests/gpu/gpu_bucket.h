// The same buckets on the device, and comparisons with the CPU's results.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "custom_ops/lib/cuda/codec.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/memory.h"

namespace tf_gc::gpu {

// Ends the program with the first difference.
template <typename T>
void ExpectSame(const std::vector<T>& actual, const std::vector<T>& expected,
                const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) == 0) continue;
    unsigned long long bits[2] = {};
    constexpr size_t kShown = std::min(sizeof(T), sizeof(bits[0]));
    std::memcpy(&bits[0], &actual[i], kShown);
    std::memcpy(&bits[1], &expected[i], kShown);
    std::fprintf(stderr, "%s: number %zu of %zu has the bits %llx, not %llx\n",
                 what.c_str(), i, expected.size(), bits[0], bits[1]);
    std::exit(1);
  }
}

// Gradients and residuals on the device.
template <typename T, typename R = float>
struct Inputs {
  // `shift` elements move the arrays off the alignment that they would have.
  Inputs(const Tensors<T>& gradients_before, const Tensors<R>& residuals_before,
         bool in_place, size_t shift)
      : gradients_before(gradients_before), residuals_before(residuals_before) {
    for (size_t i = 0; i < gradients_before.size(); ++i) {
      gradients.emplace_back(gradients_before[i], shift);
      residuals.emplace_back(residuals_before[i], shift);
      if (!in_place) outputs.emplace_back(residuals_before[i].size(), shift);
      const Array<R>& out = in_place ? residuals.back() : outputs.back();
      const auto size = static_cast<int64_t>(gradients_before[i].size());
      table.push_back({gradients.back().data(), residuals.back().data(),
                       out.data(), size, DTypeOf<R>()});
    }
  }

  int64_t count() const { return static_cast<int64_t>(table.size()); }

  // Compares the new residuals, and what was only read with what it was.
  void Expect(const Tensors<R>& new_residuals, const std::string& what) const {
    for (size_t i = 0; i < table.size(); ++i) {
      const std::string where = what + ", tensor " + std::to_string(i);
      ExpectSame(gradients[i].Read(), gradients_before[i], where);
      const bool in_place = outputs.empty();
      const auto& read = in_place ? new_residuals : residuals_before;
      ExpectSame(residuals[i].Read(), read[i], where);
      if (!in_place) ExpectSame(outputs[i].Read(), new_residuals[i], where);
    }
  }

  const Tensors<T> gradients_before;
  const Tensors<R> residuals_before;
  std::vector<Array<T>> gradients;
  std::vector<Array<R>> residuals;
  std::vector<Array<R>> outputs;
  std::vector<Gradient> table;
};

// Sums on the device.
template <typename T>
struct Outputs {
  Outputs(const Tensors<T>& like, size_t shift) {
    for (const std::vector<T>& tensor : like) {
      sums.emplace_back(tensor.size(), shift);
      table.push_back(
          {sums.back().data(), static_cast<int64_t>(tensor.size())});
    }
  }

  int64_t count() const { return static_cast<int64_t>(table.size()); }

  void Expect(const Tensors<T>& expected, const std::string& what) const {
    for (size_t i = 0; i < sums.size(); ++i) {
      ExpectSame(sums[i].Read(), expected[i],
                 what + ", tensor " + std::to_string(i));
    }
  }

  std::vector<Array<T>> sums;
  std::vector<Sum> table;
};

// Rows on the device, `together` to a tensor.
struct DeviceRows {
  DeviceRows(const std::vector<Bytes>& rows, size_t together) {
    for (size_t first = 0; first < rows.size(); first += together) {
      const size_t end = std::min(first + together, rows.size());
      Bytes joined;
      for (size_t i = first; i < end; ++i) {
        joined.insert(joined.end(), rows[i].begin(), rows[i].end());
      }
      tensors.emplace_back(joined);
      for (size_t i = first; i < end; ++i) {
        table.push_back(tensors.back().data() + (i - first) * rows[i].size());
      }
    }
  }

  int64_t count() const { return static_cast<int64_t>(table.size()); }

  std::vector<Array<uint8_t>> tensors;
  std::vector<const uint8_t*> table;
};

}  // namespace tf_gc::gpu
