#define EIGEN_USE_GPU  // defines Eigen::GpuDevice
#include "custom_ops/kernels/gpu_device.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda_runtime_api.h"

namespace tf_gc {

std::vector<gpu::Gradient> GpuDevice::Gradients(const OpInputList& gradients,
                                                const ResidualLock& residuals) {
  std::vector<gpu::Gradient> tensors;
  for (int i = 0; i < gradients.size(); ++i) {
    const ResidualLock::Buffers& residual = residuals.buffers(i);
    tensors.push_back({gradients[i].data(), residual.before, residual.after,
                       gradients[i].NumElements(), residual.dtype});
  }
  return tensors;
}

CUstream_st* GpuDevice::StreamOf(OpKernelContext* context) {
  return context->eigen_gpu_device().stream();
}

absl::Status GpuDevice::Launched(int error) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("tf_gc's CUDA kernels cannot run: ",
                                          gpu::ErrorString(error)));
}

}  // namespace tf_gc

// The CUDA versions of the runtime in this library and of the driver (0 without
// one), as 1000 * major + 10 * minor. For Python.
extern "C" void tf_gc_cuda_versions(int* runtime, int* driver) {
  *runtime = *driver = 0;
  cudaRuntimeGetVersion(runtime);
  cudaDriverGetVersion(driver);
}
