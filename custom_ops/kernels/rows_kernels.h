// The ops EncodeRows and DecodeRows, on any device: validate, find which rows
// there are, allocate, and leave the rows themselves to the device.
//
// `Device` is CpuRows (rows_kernels.cc) or GpuRows (gpu_rows_kernels.cc). One
// is made for each call of an op.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/rows/rows.h"
#include "custom_ops/lib/wire/rows_wire.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// The attributes that describe the tables and how their rows are sent.
struct RowsAttributes {
  RowsFormat format;
  std::vector<TensorShape> shapes;
  std::vector<int64_t> table_rows;
  std::vector<RowLayout> layouts;

  absl::Status Read(OpKernelConstruction* context, int tables) {
    std::string codec;
    TF_RETURN_IF_ERROR(context->GetAttr("codec", &codec));
    TF_RETURN_IF_ERROR(context->GetAttr("layers", &format.layers));
    format.codec = kNoCodec;
    if (codec != "exact") {
      TF_RETURN_IF_ERROR(ReadCodec(context, /*automatic=*/true, &format.codec));
    }
    if (format.layers > (format.IsExact() ? 1 : kMaxLayers)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layers must be in [1, ", kMaxLayers,
                       "], and 1 if rows are exact, got ", format.layers));
    }
    TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
    if (static_cast<int>(shapes.size()) != tables) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes must have one for each of ", tables,
                       " tables, got ", shapes.size()));
    }
    for (const TensorShape& shape : shapes) {
      if (shape.dims() < 1 || shape.num_elements() == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("a table has one row or more, each with one element "
                         "or more, got the shape ",
                         shape.DebugString()));
      }
      table_rows.push_back(shape.dim_size(0));
      layouts.emplace_back(format, shape.num_elements() / shape.dim_size(0));
    }
    return absl::OkStatus();
  }
};

template <typename Device, typename T>
class EncodeRowsOp : public OpKernel {
 public:
  explicit EncodeRowsOp(OpKernelConstruction* context) : OpKernel(context) {
    int tables;
    int residuals;
    OP_REQUIRES_OK(context, context->GetAttr("K", &tables));
    OP_REQUIRES_OK(context, context->GetAttr("R", &residuals));
    OP_REQUIRES_OK(context, attributes_.Read(context, tables));
    OP_REQUIRES_OK(context, context->GetAttr("names", &names_));
    OP_REQUIRES(context, static_cast<int>(names_.size()) == tables,
                absl::InvalidArgumentError(
                    absl::StrCat("names must have one for each of ", tables,
                                 " tables, got ", names_.size())));
    OP_REQUIRES(
        context,
        residuals == 0 ||
            (attributes_.format.layers == 1 && !attributes_.format.IsExact()),
        absl::InvalidArgumentError(
            "residuals are for one layer of a codec: exact rows and two "
            "layers keep nothing"));
  }

  bool IsExpensive() override { return true; }  // it may wait for a device

  void Compute(OpKernelContext* context) override {
    const OpInputList values = Inputs(context, "values");
    const OpInputList indices = Inputs(context, "indices");
    Device device(context);
    std::vector<Occurrences> rows;
    OP_REQUIRES_OK(context,
                   device.Find(indices, attributes_.table_rows, &rows));
    std::vector<RowsSection> sections;
    int64_t bytes = sizeof(RowsHeader);
    for (int i = 0; i < values.size(); ++i) {
      const std::vector<int64_t>& own = rows[i].indices;
      OP_REQUIRES_OK(context, Check(i, values[i], indices[i], own));
      sections.push_back({static_cast<int64_t>(own.size()), GapBytes(own)});
      bytes += LayoutOfSection(attributes_.layouts[i], sections.back()).end;
    }
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({1, bytes / kWordBytes}), &message));
    // Last of all that may fail: from here on residuals change.
    ResidualLock residuals;
    OP_REQUIRES_OK(context, residuals.Acquire(context, attributes_.shapes,
                                              /*smallest=*/DType::kBFloat16));

    auto* to = static_cast<uint8_t*>(message->data());
    const RowsHeader header = attributes_.format.Header(values.size());
    OP_REQUIRES_OK(context, device.Copy(&header, to, sizeof(header)));
    to += sizeof(header);
    for (int i = 0; i < values.size(); ++i) {
      const ResidualLock::Buffers& residual = residuals.buffers(i);
      if (residual.before != residual.after) {
        const int64_t elements = attributes_.shapes[i].num_elements();
        OP_REQUIRES_OK(context,
                       device.Copy(residual.before, residual.after,
                                   elements * BytesOf(residual.dtype)));
      }
      const RowLayout& layout = attributes_.layouts[i];
      OP_REQUIRES_OK(context, device.template Encode<T>(
                                  attributes_.format, layout, sections[i], i,
                                  rows[i], values[i], residual, to));
      to += LayoutOfSection(layout, sections[i]).end;
    }
    residuals.Commit();
  }

 private:
  absl::Status Check(int table, const Tensor& values, const Tensor& indices,
                     const std::vector<int64_t>& sent) {
    TensorShape expected = attributes_.shapes[table];
    if (indices.dims() == 1) expected.set_dim(0, indices.NumElements());
    if (indices.dims() != 1 || values.shape() != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the gradient of ", names_[table], " has values of the shape ",
          values.shape().DebugString(), " and indices of the shape ",
          indices.shape().DebugString(), ", and its table is ",
          attributes_.shapes[table].DebugString()));
    }
    for (int64_t index : sent) {
      if (index < 0 || index >= attributes_.table_rows[table]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the gradient of ", names_[table], " has the index ", index,
            ", which is not in [0, ", attributes_.table_rows[table], ")"));
      }
    }
    return absl::OkStatus();
  }

  RowsAttributes attributes_;
  std::vector<std::string> names_;
};

template <typename Device, typename T>
class DecodeRowsOp : public OpKernel {
 public:
  explicit DecodeRowsOp(OpKernelConstruction* context) : OpKernel(context) {
    int tables;
    OP_REQUIRES_OK(context, context->GetAttr("K", &tables));
    OP_REQUIRES_OK(context, attributes_.Read(context, tables));
  }

  bool IsExpensive() override { return true; }  // it may wait for a device

  void Compute(OpKernelContext* context) override {
    const OpInputList messages = Inputs(context, "messages");
    Device device(context);
    std::vector<const uint8_t*> on_host;
    OP_REQUIRES_OK(context, device.Fetch(messages, &on_host));
    std::vector<std::vector<ReceivedRows>> received;
    for (int i = 0; i < messages.size(); ++i) {
      const Tensor& message = messages[i];
      OP_REQUIRES(context, message.dims() == 2,
                  absl::InvalidArgumentError(absl::StrCat(
                      "messages must have the shape [rows, words], got ",
                      message.shape().DebugString())));
      const int64_t bytes = message.dim_size(1) * kWordBytes;
      const auto* data = static_cast<const uint8_t*>(message.data());
      for (int64_t row = 0; row < message.dim_size(0); ++row) {
        received.emplace_back();
        OP_REQUIRES(
            context,
            ReadRows(attributes_.format, attributes_.layouts,
                     attributes_.table_rows, on_host[i] + row * bytes, bytes,
                     &received.back()),
            absl::InvalidArgumentError(absl::StrCat(
                "message ", received.size() - 1, " of ", bytes,
                " bytes has no rows of these tables in this format: a part is "
                "missing, or bytes have changed")));
        for (ReceivedRows& rows : received.back()) {
          rows.section = data + (rows.section - on_host[i]);
        }
      }
    }
    OpOutputList values;
    OpOutputList indices;
    OP_REQUIRES_OK(context, context->output_list("values", &values));
    OP_REQUIRES_OK(context, context->output_list("indices", &indices));
    for (int i = 0; i < values.size(); ++i) {
      std::vector<const ReceivedRows*> of_table;
      for (const auto& sections : received) of_table.push_back(&sections[i]);
      const MergedRows rows = MergeRows(attributes_.layouts[i], of_table);
      const auto count = static_cast<int64_t>(rows.indices.size());
      TensorShape shape = attributes_.shapes[i];
      shape.set_dim(0, count);
      Tensor* sum = nullptr;
      Tensor* numbers = nullptr;
      OP_REQUIRES_OK(context, values.allocate(i, shape, &sum));
      OP_REQUIRES_OK(context,
                     indices.allocate(i, TensorShape({count}), &numbers));
      OP_REQUIRES_OK(context, device.Copy(rows.indices.data(), numbers->data(),
                                          count * sizeof(rows.indices[0])));
      OP_REQUIRES_OK(
          context, device.template Decode<T>(
                       attributes_.format, attributes_.layouts[i], rows, sum));
    }
  }

 private:
  RowsAttributes attributes_;
};

#define TF_GC_REGISTER_ROWS_OF(type, OnDevice, T)                  \
  REGISTER_KERNEL_BUILDER(Name("TfGc>EncodeRows")                  \
                              .Device(type)                        \
                              .HostMemory("residuals")             \
                              .TypeConstraint<T>("T"),             \
                          EncodeRowsOp<OnDevice, T>);              \
  REGISTER_KERNEL_BUILDER(                                         \
      Name("TfGc>DecodeRows").Device(type).TypeConstraint<T>("T"), \
      DecodeRowsOp<OnDevice, T>)

// Registers the kernels of both ops on a device that TensorFlow calls `type`.
#define TF_GC_REGISTER_ROWS(type, OnDevice)            \
  TF_GC_REGISTER_ROWS_OF(type, OnDevice, float);       \
  TF_GC_REGISTER_ROWS_OF(type, OnDevice, Eigen::half); \
  TF_GC_REGISTER_ROWS_OF(type, OnDevice, Eigen::bfloat16)

}  // namespace tf_gc
