// Shape functions of the codecs' ops.

#ifndef TF_GC_CUSTOM_OPS_OPS_SHAPES_H_
#define TF_GC_CUSTOM_OPS_OPS_SHAPES_H_

#include "custom_ops/lib/wire/wire.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {

// Gradients and residuals to messages of `codec`.
absl::Status EncodeShape(tensorflow::shape_inference::InferenceContext* c,
                         Codec codec);

// Messages and `like` to sums, for both decode ops.
absl::Status DecodeShape(tensorflow::shape_inference::InferenceContext* c);

// Messages, gradients and residuals to a message. `codec` is automatic.
absl::Status ReencodeShape(tensorflow::shape_inference::InferenceContext* c,
                           Codec codec);

// Messages of `codec`, which is fixed, to a message of counts.
absl::Status CountShape(tensorflow::shape_inference::InferenceContext* c,
                        Codec codec);

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_OPS_SHAPES_H_
