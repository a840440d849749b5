// CPU kernels of the one-bit ops.

#include "custom_ops/kernels/cpu_device.h"
#include "custom_ops/kernels/one_bit.h"
#include "custom_ops/kernels/shard_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

TF_GC_REGISTER_FAMILY(tensorflow::DEVICE_CPU, "OneBit", CpuDevice, OneBit);

}  // namespace tf_gc
