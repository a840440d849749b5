// The one-bit codec as its ops' attributes name it.

#ifndef TF_GC_CUSTOM_OPS_KERNELS_ONE_BIT_H_
#define TF_GC_CUSTOM_OPS_KERNELS_ONE_BIT_H_

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

struct OneBit {
  static constexpr Codec kAuto = Codec::kOneBitAuto;

  // The attribute `fixed` says whether `threshold` is used.
  static absl::Status ReadFormat(tensorflow::OpKernelConstruction* context,
                                 MessageFormat* format) {
    bool fixed;
    float threshold;
    TF_RETURN_IF_ERROR(context->GetAttr("fixed", &fixed));
    TF_RETURN_IF_ERROR(context->GetAttr("threshold", &threshold));
    // By the bits: a thread that flushes subnormal numbers takes those for 0.
    // -0 decides as 0 does, and the headers of messages must not differ.
    uint32_t bits;
    std::memcpy(&bits, &threshold, sizeof(threshold));
    const bool zero = (bits & 0x7fffffffu) == 0;
    if (fixed ? !IsFinite(threshold) : !zero) {
      return absl::InvalidArgumentError(absl::StrCat(
          "threshold must be in (", -kMaxMagnitude, ", ", kMaxMagnitude,
          ") where `fixed`, 0 elsewhere, got ", threshold));
    }
    *format = {fixed ? Codec::kOneBitFixed : kAuto, zero ? 0.0f : threshold};
    return absl::OkStatus();
  }
};

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_ONE_BIT_H_
