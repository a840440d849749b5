// The ops of low rank on the CPU: validate, allocate, share the work among
// TensorFlow's threads, call the library.

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/low_rank/factors.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

// A range of columns that a thread takes is a multiple of this.
constexpr int64_t kFewestColumns = 16;

// The matrices of a bucket, and what their factors take together.
struct FactoredMatrices {
  std::vector<FactoredMatrix> all;
  int64_t p_size = 0;
  int64_t q_size = 0;
};

// The attributes that describe the matrices.
struct FactorsAttributes {
  std::vector<int64_t> rows;
  int rank;

  absl::Status Read(OpKernelConstruction* context) {
    int matrices;
    TF_RETURN_IF_ERROR(context->GetAttr("K", &matrices));
    TF_RETURN_IF_ERROR(context->GetAttr("rows", &rows));
    TF_RETURN_IF_ERROR(context->GetAttr("rank", &rank));
    if (rows.size() != static_cast<size_t>(matrices)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows must have one for each of ", matrices,
                       " matrices, got ", rows.size()));
    }
    if (rank > kMostRank) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank must be in [1, ", kMostRank, "], got ", rank));
    }
    return absl::OkStatus();
  }

  // Finds out the matrices of tensors.
  absl::Status Of(const OpInputList& tensors,
                  FactoredMatrices* matrices) const {
    for (int i = 0; i < tensors.size(); ++i) {
      const int64_t elements = tensors[i].NumElements();
      if (rows[i] < 1 || elements == 0 || elements % rows[i] != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a tensor of the shape ", tensors[i].shape().DebugString(),
            " is no matrix of ", rows[i], " rows"));
      }
      matrices->all.push_back({rows[i], elements / rows[i], rank});
      matrices->p_size += rank * rows[i];
      matrices->q_size += rank * (elements / rows[i]);
    }
    return absl::OkStatus();
  }
};

absl::Status CheckVector(const char* name, const Tensor& tensor,
                         int64_t elements) {
  if (tensor.shape() == TensorShape({elements})) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must have the shape [",
                                                 elements, "], got ",
                                                 tensor.shape().DebugString()));
}

absl::Status CheckFactors(const OpInputList& factors,
                          const FactoredMatrices& matrices) {
  for (int i = 0; i < factors.size(); ++i) {
    const FactoredMatrix& matrix = matrices.all[i];
    TF_RETURN_IF_ERROR(CheckVector("each of factors", factors[i],
                                   matrix.rank * matrix.columns));
  }
  return absl::OkStatus();
}

template <typename T>
class ProjectFactorsOp : public OpKernel {
 public:
  explicit ProjectFactorsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    const OpInputList gradients = Inputs(context, "gradients");
    const OpInputList factors = Inputs(context, "factors");
    FactoredMatrices matrices;
    OP_REQUIRES_OK(context, attributes_.Of(gradients, &matrices));
    OP_REQUIRES_OK(context, CheckFactors(factors, matrices));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({matrices.p_size}), &message));
    std::vector<Tensor> residuals;
    OP_REQUIRES_OK(context, ReadResiduals(context, gradients, &residuals));

    float* to = message->flat<float>().data();
    for (int i = 0; i < gradients.size(); ++i) {
      const FactoredMatrix& matrix = matrices.all[i];
      const float* q = factors[i].flat<float>().data();
      std::vector<float> start;
      if (std::all_of(q, q + factors[i].NumElements(),
                      [](float x) { return x == 0; })) {
        start.assign(q, q + factors[i].NumElements());
        MakeOrthonormal(matrix.columns, matrix.rank, start.data());
        q = start.data();
      }
      const LibType<T>* const gradient = Data<T>(gradients[i]);
      InThreads(context, matrix.rows, matrix.rank * matrix.columns,
                [&](int64_t first, int64_t last) {
                  ProjectMatrix(matrix, first, last, gradient,
                                Data<float>(residuals[i]), q, to);
                });
      to += matrix.rank * matrix.rows;
    }
  }

 private:
  FactorsAttributes attributes_;
};

template <typename T>
class EncodeFactorsOp : public OpKernel {
 public:
  explicit EncodeFactorsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* total = nullptr;
    const OpInputList gradients = Inputs(context, "gradients");
    OP_REQUIRES_OK(context, context->input("total", &total));
    FactoredMatrices matrices;
    OP_REQUIRES_OK(context, attributes_.Of(gradients, &matrices));
    OP_REQUIRES_OK(context, CheckVector("total", *total, matrices.p_size));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({matrices.q_size}), &message));
    Tensor* basis = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(1, total->shape(), &basis));
    // Last of all that may fail: from here on residuals change.
    ResidualLock residuals;
    OP_REQUIRES_OK(context, residuals.Acquire(context, gradients,
                                              /*smallest=*/DType::kFloat));

    float* p = basis->flat<float>().data();
    float* q = message->flat<float>().data();
    // A sum may overflow although no part of it does.
    std::transform(total->flat<float>().data(),
                   total->flat<float>().data() + matrices.p_size, p,
                   [](float x) { return std::isfinite(x) ? x : 0.0f; });
    for (int i = 0; i < gradients.size(); ++i) {
      const FactoredMatrix& matrix = matrices.all[i];
      MakeOrthonormal(matrix.rows, matrix.rank, p);
      const LibType<T>* const gradient = Data<T>(gradients[i]);
      const ResidualLock::Buffers& residual = residuals.buffers(i);
      const int64_t parts =
          (matrix.columns + kFewestColumns - 1) / kFewestColumns;
      InThreads(context, parts, matrix.rank * matrix.rows * kFewestColumns,
                [&](int64_t first, int64_t last) {
                  EncodeMatrix(matrix, first * kFewestColumns,
                               std::min(last * kFewestColumns, matrix.columns),
                               gradient,
                               static_cast<const float*>(residual.before),
                               static_cast<float*>(residual.after), p, q);
                });
      p += matrix.rank * matrix.rows;
      q += matrix.rank * matrix.columns;
    }
    residuals.Commit();
  }

 private:
  FactorsAttributes attributes_;
};

template <typename T>
class DecodeFactorsOp : public OpKernel {
 public:
  explicit DecodeFactorsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& total = context->input(0);
    const Tensor& basis = context->input(1);
    const OpInputList factors = Inputs(context, "factors");
    const OpInputList like = Inputs(context, "like");
    FactoredMatrices matrices;
    OP_REQUIRES_OK(context, attributes_.Of(like, &matrices));
    OP_REQUIRES_OK(context, CheckFactors(factors, matrices));
    OP_REQUIRES_OK(context, CheckVector("total", total, matrices.q_size));
    OP_REQUIRES_OK(context, CheckVector("basis", basis, matrices.p_size));
    std::vector<LibType<T>*> sums;
    OP_REQUIRES_OK(context, ForwardSums<T>(context, &sums));
    OpOutputList next;
    OP_REQUIRES_OK(context, context->output_list("next", &next));
    const float* p = basis.flat<float>().data();
    const float* q = total.flat<float>().data();
    for (int i = 0; i < next.size(); ++i) {
      const FactoredMatrix& matrix = matrices.all[i];
      const int64_t elements = matrix.rank * matrix.columns;
      Tensor* after = nullptr;
      OP_REQUIRES_OK(context, next.allocate(i, factors[i].shape(), &after));
      float* const columns = after->flat<float>().data();
      if (std::all_of(q, q + elements,
                      [](float x) { return std::isfinite(x); })) {
        std::copy_n(q, elements, columns);
        MakeOrthonormal(matrix.columns, matrix.rank, columns);
      } else {
        std::copy_n(factors[i].flat<float>().data(), elements, columns);
      }
      InThreads(context, matrix.rows, matrix.rank * matrix.columns,
                [&](int64_t first, int64_t last) {
                  MultiplyFactors(matrix, first, last, p, q, sums[i]);
                });
      p += matrix.rank * matrix.rows;
      q += elements;
    }
  }

 private:
  FactorsAttributes attributes_;
};

TF_GC_REGISTER_ON_CPU(ProjectFactors);
TF_GC_REGISTER_ON_CPU(EncodeFactors);
TF_GC_REGISTER_ON_CPU(DecodeFactors);

}  // namespace
}  // namespace tf_gc
