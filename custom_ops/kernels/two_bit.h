// The two-bit codec as its ops' attributes name it.

#ifndef TF_GC_CUSTOM_OPS_KERNELS_TWO_BIT_H_
#define TF_GC_CUSTOM_OPS_KERNELS_TWO_BIT_H_

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

struct TwoBit {
  static constexpr Codec kAuto = Codec::kTwoBitAuto;

  // The attribute `threshold` is 0, or a number that the fixed codec takes.
  static absl::Status ReadFormat(tensorflow::OpKernelConstruction* context,
                                 MessageFormat* format) {
    float threshold;
    TF_RETURN_IF_ERROR(context->GetAttr("threshold", &threshold));
    uint32_t bits;
    std::memcpy(&bits, &threshold, sizeof(threshold));
    *format = {TwoBitCodec(bits), 0.0f};
    if (IsAuto(format->codec)) return absl::OkStatus();
    if (!(threshold >= kMinMagnitude && threshold < kMaxMagnitude)) {
      return absl::InvalidArgumentError(
          absl::StrCat("threshold must be 0 (automatic) or in [", kMinMagnitude,
                       ", ", kMaxMagnitude, "), got ", threshold));
    }
    format->threshold = threshold;
    return absl::OkStatus();
  }
};

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_TWO_BIT_H_
