// GPU kernels of all codecs' ops.

#include "custom_ops/kernels/gpu_device.h"
#include "custom_ops/kernels/one_bit.h"
#include "custom_ops/kernels/shard_kernels.h"
#include "custom_ops/kernels/two_bit.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

TF_GC_REGISTER_FAMILY(tensorflow::DEVICE_GPU, "OneBit", GpuDevice, OneBit);
TF_GC_REGISTER_FAMILY(tensorflow::DEVICE_GPU, "TwoBit", GpuDevice, TwoBit);

}  // namespace tf_gc
