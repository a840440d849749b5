// The attribute `codec`, which all ops have.

#ifndef TF_GC_CUSTOM_OPS_OPS_CODEC_ATTRIBUTE_H_
#define TF_GC_CUSTOM_OPS_OPS_CODEC_ATTRIBUTE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "custom_ops/lib/wire/wire.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_gc {

// The names that the attribute takes, each in `quotes`.
inline std::string CodecNames(const char* quotes) {
  return absl::StrJoin(kCodecNames, ", ",
                       [quotes](std::string* out, const CodecName& codec) {
                         absl::StrAppend(out, quotes, codec.name, quotes);
                       });
}

// The attribute as an op declares it.
inline std::string CodecAttribute() {
  return absl::StrCat("codec: {", CodecNames("'"), "}");
}

// Reads the attribute. `Context` is InferenceContext or OpKernelConstruction.
template <typename Context>
absl::Status ReadCodec(Context* context, bool automatic, Codec* codec) {
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr("codec", &name));
  if (FindCodec(name, automatic, codec)) return absl::OkStatus();
  if (FindCodec(name, !automatic, codec)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the codec \"", name,
                     "\" has automatic scales only, and no fixed threshold"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "codec must be one of ", CodecNames("\""), ", got \"", name, "\""));
}

// Reads it together with the attribute `automatic`.
template <typename Context>
absl::Status ReadCodec(Context* context, Codec* codec) {
  bool automatic;
  TF_RETURN_IF_ERROR(context->GetAttr("automatic", &automatic));
  return ReadCodec(context, automatic, codec);
}

// InvalidArgument if messages of a codec have no compact form.
inline absl::Status CheckCompactible(Codec codec) {
  if (IsCompactible(codec)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "messages of codec ", NameOf(codec),
      " have no compact form: codes of one bit do not get smaller"));
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_OPS_CODEC_ATTRIBUTE_H_
