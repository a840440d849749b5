// The ops EncodeFactors and DecodeFactors on the CPU: validate, allocate, share
// the work among TensorFlow's threads, call the library.

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/low_rank/factors.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// A range of columns that a thread takes is a multiple of this.
constexpr int64_t kFewestColumns = 16;

// What the attributes say of the matrices.
struct FactorsAttributes {
  std::vector<int64_t> rows;
  std::vector<bool> p_first;
  int rank;

  absl::Status Read(OpKernelConstruction* context) {
    int matrices;
    TF_RETURN_IF_ERROR(context->GetAttr("K", &matrices));
    TF_RETURN_IF_ERROR(context->GetAttr("rows", &rows));
    TF_RETURN_IF_ERROR(context->GetAttr("p_first", &p_first));
    TF_RETURN_IF_ERROR(context->GetAttr("rank", &rank));
    const auto count = static_cast<size_t>(matrices);
    if (rows.size() != count || p_first.size() != count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rows and p_first must have one for each of ", matrices,
          " matrices, got ", rows.size(), " and ", p_first.size()));
    }
    if (rank > kMostRank) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank must be in [1, ", kMostRank, "], got ", rank));
    }
    return absl::OkStatus();
  }

  // Finds out the matrices of tensors; checks that their factors fit them, and
  // whether the factors of a turn fit into a message of `size`.
  absl::Status Fit(const OpInputList& tensors, const OpInputList& factors,
                   int64_t size, std::vector<FactoredMatrix>* matrices) const {
    int64_t needed[2] = {0, 0};
    for (int i = 0; i < tensors.size(); ++i) {
      const int64_t elements = tensors[i].NumElements();
      if (rows[i] < 1 || elements == 0 || elements % rows[i] != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a tensor of the shape ", tensors[i].shape().DebugString(),
            " is no matrix of ", rows[i], " rows"));
      }
      const FactoredMatrix matrix = {rows[i], elements / rows[i], rank};
      const int64_t both = rank * (matrix.rows + matrix.columns);
      if (factors[i].shape() != TensorShape({1 + both})) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the factors of a matrix of ", matrix.rows, " rows and ",
            matrix.columns, " columns must have the shape [", 1 + both,
            "], got ", factors[i].shape().DebugString()));
      }
      needed[p_first[i] ? 0 : 1] += rank * matrix.rows;
      needed[p_first[i] ? 1 : 0] += rank * matrix.columns;
      matrices->push_back(matrix);
    }
    if (size < std::max(needed[0], needed[1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("a message of ", size, " elements is shorter than ",
                       std::max(needed[0], needed[1])));
    }
    return absl::OkStatus();
  }
};

int TurnOf(const OpInputList& factors) {
  return factors[0].flat<float>()(0) > 0 ? 1 : 0;
}

// The factors of a matrix, and which of them a step sends.
struct Turn {
  bool sends_p;
  int64_t sent;  // elements
  int64_t kept;
  // In the vector of factors.
  int64_t sent_at;
  int64_t kept_at;

  Turn(const FactoredMatrix& matrix, bool p_first, int turn)
      : sends_p(p_first == (turn == 0)) {
    const int64_t p = matrix.rank * matrix.rows;
    const int64_t q = matrix.rank * matrix.columns;
    sent = sends_p ? p : q;
    kept = sends_p ? q : p;
    sent_at = sends_p ? 1 : 1 + p;
    kept_at = sends_p ? 1 + p : 1;
  }
};

// Returns a factor, or the columns to start with if it is all zero.
std::vector<float> BasisOf(const float* from, int64_t elements, int rank) {
  std::vector<float> basis(from, from + elements);
  if (std::all_of(basis.begin(), basis.end(), [](float x) { return x == 0; })) {
    MakeOrthonormal(elements / rank, rank, basis.data());
  }
  return basis;
}

// Calls work(first, last) for parts of `count`, in the device's threads. `cost`
// is what one takes, in nanoseconds.
template <typename Work>
void InThreads(OpKernelContext* context, int64_t count, int64_t cost,
               Work work) {
  const auto& pool = *context->device()->tensorflow_cpu_worker_threads();
  tensorflow::Shard(pool.num_threads, pool.workers, count, cost, work);
}

template <typename T>
class EncodeFactorsOp : public OpKernel {
 public:
  explicit EncodeFactorsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
    OP_REQUIRES_OK(context, context->GetAttr("size", &size_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OpInputList factors;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    OP_REQUIRES_OK(context, context->input_list("factors", &factors));
    std::vector<FactoredMatrix> matrices;
    OP_REQUIRES_OK(context,
                   attributes_.Fit(gradients, factors, size_, &matrices));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({size_}), &message));
    // Last of all that may fail: from here on residuals change.
    ResidualLock residuals;
    OP_REQUIRES_OK(context, residuals.Acquire(context, gradients));

    const int turn = TurnOf(factors);
    float* to = message->flat<float>().data();
    float* const end = to + size_;
    for (int i = 0; i < gradients.size(); ++i) {
      const FactoredMatrix& matrix = matrices[i];
      const Turn of(matrix, attributes_.p_first[i], turn);
      const std::vector<float> basis = BasisOf(
          factors[i].flat<float>().data() + of.kept_at, of.kept, matrix.rank);
      const LibType<T>* const gradient = Data<T>(gradients[i]);
      const ResidualLock::Buffers& residual = residuals.buffers(i);
      if (of.sends_p) {
        InThreads(context, matrix.rows, matrix.rank * matrix.columns,
                  [&](int64_t first, int64_t last) {
                    EncodeP(matrix, first, last, gradient, residual.before,
                            residual.after, basis.data(), to);
                  });
      } else {
        const int64_t parts =
            (matrix.columns + kFewestColumns - 1) / kFewestColumns;
        InThreads(context, parts, matrix.rank * matrix.rows * kFewestColumns,
                  [&](int64_t first, int64_t last) {
                    EncodeQ(matrix, first * kFewestColumns,
                            std::min(last * kFewestColumns, matrix.columns),
                            gradient, residual.before, residual.after,
                            basis.data(), to);
                  });
      }
      to += of.sent;
    }
    std::fill(to, end, 0.0f);
    residuals.Commit();
  }

 private:
  FactorsAttributes attributes_;
  int64_t size_;
};

template <typename T>
class DecodeFactorsOp : public OpKernel {
 public:
  explicit DecodeFactorsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& total = context->input(0);
    OpInputList factors;
    OpInputList like;
    OP_REQUIRES_OK(context, context->input_list("factors", &factors));
    OP_REQUIRES_OK(context, context->input_list("like", &like));
    OP_REQUIRES(context, total.dims() == 1,
                absl::InvalidArgumentError(
                    absl::StrCat("total must be a vector, got the shape ",
                                 total.shape().DebugString())));
    std::vector<FactoredMatrix> matrices;
    OP_REQUIRES_OK(context, attributes_.Fit(like, factors, total.NumElements(),
                                            &matrices));
    const int turn = TurnOf(factors);
    std::vector<LibType<T>*> sums;
    OP_REQUIRES_OK(context, ForwardSums<T>(context, &sums));
    OpOutputList next;
    OP_REQUIRES_OK(context, context->output_list("next", &next));
    const float* sent = total.flat<float>().data();
    for (int i = 0; i < next.size(); ++i) {
      const FactoredMatrix& matrix = matrices[i];
      Tensor* after = nullptr;
      OP_REQUIRES_OK(context, next.allocate(i, factors[i].shape(), &after));
      float* const vector = after->flat<float>().data();
      const float* const before = factors[i].flat<float>().data();
      const Turn of(matrix, attributes_.p_first[i], turn);
      const std::vector<float> basis =
          BasisOf(before + of.kept_at, of.kept, matrix.rank);
      vector[0] = static_cast<float>(1 - turn);
      std::copy(basis.begin(), basis.end(), vector + of.kept_at);
      float* const made = vector + of.sent_at;
      if (std::all_of(sent, sent + of.sent,
                      [](float x) { return std::isfinite(x); })) {
        std::copy_n(sent, of.sent, made);
        MakeOrthonormal(of.sent / matrix.rank, matrix.rank, made);
      } else {
        std::copy_n(before + of.sent_at, of.sent, made);
      }
      InThreads(context, matrix.rows, matrix.rank * matrix.columns,
                [&](int64_t first, int64_t last) {
                  MultiplyFactors(matrix, first, last,
                                  of.sends_p ? sent : basis.data(),
                                  of.sends_p ? basis.data() : sent, sums[i]);
                });
      sent += of.sent;
    }
  }

 private:
  FactorsAttributes attributes_;
};

#define TF_GC_REGISTER(T)                                     \
  REGISTER_KERNEL_BUILDER(Name("TfGc>EncodeFactors")          \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          EncodeFactorsOp<T>);                \
  REGISTER_KERNEL_BUILDER(Name("TfGc>DecodeFactors")          \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          DecodeFactorsOp<T>)

TF_GC_REGISTER(float);
TF_GC_REGISTER(Eigen::half);
TF_GC_REGISTER(Eigen::bfloat16);
#undef TF_GC_REGISTER

}  // namespace
}  // namespace tf_gc
