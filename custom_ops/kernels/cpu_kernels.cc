// Registers the CPU kernels of all ops.

#include "custom_ops/kernels/cpu_device.h"
#include "custom_ops/kernels/shard_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

TF_GC_REGISTER_KERNELS(tensorflow::DEVICE_CPU, CpuDevice);

}  // namespace tf_gc
