// The attribute `codec`, which all ops have, and `sum_codec`.

#pragma once

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

// An attribute as an op declares it.
inline std::string CodecAttribute(const char* attribute = "codec") {
  return absl::StrCat(attribute, ": {", CodecNames("'"), "}");
}

// Reads an attribute. `Context` is InferenceContext or OpKernelConstruction.
template <typename Context>
absl::Status ReadCodec(Context* context, bool automatic, Codec* codec,
                       const char* attribute = "codec") {
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr(attribute, &name));
  if (FindCodec(name, automatic, codec)) return absl::OkStatus();
  if (FindCodec(name, !automatic, codec)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the codec \"", name,
                     "\" has automatic scales only, and no fixed threshold"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      attribute, " must be one of ", CodecNames("\""), ", got \"", name, "\""));
}

// Reads `codec` together with the attribute `automatic`.
template <typename Context>
absl::Status ReadCodec(Context* context, Codec* codec) {
  bool automatic;
  TF_RETURN_IF_ERROR(context->GetAttr("automatic", &automatic));
  return ReadCodec(context, automatic, codec);
}

// Reads `codec` and `sum_codec`, with automatic scales. InvalidArgument if sums
// of messages of the one are not sent by the other.
template <typename Context>
absl::Status ReadSumCodecs(Context* context, Codec* codec, Codec* sum_codec) {
  TF_RETURN_IF_ERROR(ReadCodec(context, /*automatic=*/true, codec));
  TF_RETURN_IF_ERROR(
      ReadCodec(context, /*automatic=*/true, sum_codec, "sum_codec"));
  if (SumsIn(*codec, *sum_codec)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sum_codec must be \"", NameOf(*codec), "\" or \"",
                   NameOf(FinerSums(*codec)), "\" for messages of ",
                   NameOf(*codec), ", got \"", NameOf(*sum_codec), "\""));
}

// The blocks of a message with `words` words. InvalidArgument if no message of
// the codec has that number.
inline absl::Status ReadBlocks(Codec codec, int64_t words, int64_t* blocks) {
  *blocks = BlocksOf(codec, words);
  if (*blocks >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "no message of codec ", NameOf(codec), " has ", words, " words"));
}

// InvalidArgument if messages of a codec have no compact form.
inline absl::Status CheckCompactible(Codec codec) {
  if (IsCompactible(codec)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "messages of codec ", NameOf(codec), " have no compact form"));
}

}  // namespace tf_gc
