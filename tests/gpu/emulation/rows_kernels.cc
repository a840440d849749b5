// The GPU's kernels of the ops for rows, emulated: once this library is loaded,
// the CPU has them instead of its own.

#include "custom_ops/kernels/rows_kernels.h"

#include "custom_ops/kernels/gpu_device.h"
#include "custom_ops/lib/cpu/float_mode.h"

namespace tf_gc {

CUstream_st* GpuDevice::StreamOf(OpKernelContext*) {
  new ScopedExactFloatMode;  // as on GPUs, until TensorFlow sets its own again
  return nullptr;
}

absl::Status GpuDevice::Launched(int error) {
  return error == 0 ? absl::OkStatus() : absl::InternalError("a CUDA error");
}

}  // namespace tf_gc

#undef TF_GC_REGISTER_ROWS_OF
#define TF_GC_REGISTER_ROWS_OF(type, OnDevice, T)             \
  REGISTER_KERNEL_BUILDER(Name("TfGc>EncodeRows")             \
                              .Device(tensorflow::DEVICE_CPU) \
                              .Priority(1)                    \
                              .TypeConstraint<T>("T"),        \
                          EncodeRowsOp<OnDevice, T>);         \
  REGISTER_KERNEL_BUILDER(Name("TfGc>DecodeRows")             \
                              .Device(tensorflow::DEVICE_CPU) \
                              .Priority(1)                    \
                              .TypeConstraint<T>("T"),        \
                          DecodeRowsOp<OnDevice, T>)

#include "custom_ops/kernels/gpu_rows_kernels.cc"
