// CPU kernels of the two-bit ops.

#include "custom_ops/kernels/cpu_device.h"
#include "custom_ops/kernels/shard_kernels.h"
#include "custom_ops/kernels/two_bit.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

TF_GC_REGISTER_FAMILY(tensorflow::DEVICE_CPU, "TwoBit", CpuDevice, TwoBit);

}  // namespace tf_gc
