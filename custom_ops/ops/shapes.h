// Shape functions of the ops.

#ifndef TF_GC_CUSTOM_OPS_OPS_SHAPES_H_
#define TF_GC_CUSTOM_OPS_OPS_SHAPES_H_

#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {

// Encode: gradients and residuals to messages.
absl::Status EncodeShape(tensorflow::shape_inference::InferenceContext* c);

// Decode and DecodeShards: messages and `like` to sums.
absl::Status DecodeShape(tensorflow::shape_inference::InferenceContext* c);

// Reencode: messages, gradients and residuals to messages.
absl::Status ReencodeShape(tensorflow::shape_inference::InferenceContext* c);

// Count: messages to a message of counts.
absl::Status CountShape(tensorflow::shape_inference::InferenceContext* c);

// Pack: messages to compact messages and their lengths.
absl::Status PackShape(tensorflow::shape_inference::InferenceContext* c);

// Unpack: compact messages and `words` to messages.
absl::Status UnpackShape(tensorflow::shape_inference::InferenceContext* c);

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_OPS_SHAPES_H_
