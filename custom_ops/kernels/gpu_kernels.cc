// Registers the GPU kernels of all ops.

#include "custom_ops/kernels/gpu_device.h"
#include "custom_ops/kernels/shard_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

TF_GC_REGISTER_KERNELS(tensorflow::DEVICE_GPU, GpuDevice);

}  // namespace tf_gc
