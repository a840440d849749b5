#include "custom_ops/ops/shapes.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"

namespace tf_gc {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeAndType;
using ::tensorflow::shape_inference::ShapeHandle;

namespace {

// Checks that a residual is float32 and has the shape of its gradient. `merged`
// gets that shape, as far as the gradient's and the residual's together tell
// it: TensorFlow may not know the shape of a gradient out of a loop, and
// collectives need messages of a known length.
absl::Status MergeResidual(InferenceContext* c, int index, ShapeHandle gradient,
                           ShapeHandle* merged) {
  *merged = gradient;
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(index), 0, &scalar));
  const std::vector<ShapeAndType>* handle =
      c->input_handle_shapes_and_types(index);
  if (handle == nullptr || handle->empty()) return absl::OkStatus();
  const tensorflow::DataType dtype = handle->front().dtype;
  if (dtype != tensorflow::DT_FLOAT && dtype != tensorflow::DT_INVALID) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a residual must be float32, got ", tensorflow::DataTypeString(dtype)));
  }
  return c->Merge(handle->front().shape, gradient, merged);
}

// Checks the residuals, and gives the number of words in a message with a shard
// of the gradients. The gradients are the inputs from number `first` on.
absl::Status ShardWords(InferenceContext* c, int first, Codec codec,
                        DimensionHandle* words) {
  int count;
  int64_t shards;
  TF_RETURN_IF_ERROR(c->GetAttr("K", &count));
  TF_RETURN_IF_ERROR(c->GetAttr("shards", &shards));
  bool known = true;
  int64_t blocks = 0;
  for (int i = first; i < first + count; ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(MergeResidual(c, count + i, c->input(i), &shape));
    const DimensionHandle elements = c->NumElements(shape);
    known = known && c->ValueKnown(elements);
    if (known) blocks += NumBlocks(c->Value(elements));
    if (blocks > kMaxBlocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("a bucket has at most ", kMaxBlocks, " blocks of ",
                       kBlockSize, " elements, got ", blocks));
    }
  }
  *words = c->UnknownDim();
  if (known) {
    *words = c->MakeDim(LayoutOf(codec, ShardBlocks(blocks, shards)).words());
  }
  return absl::OkStatus();
}

// Merges `words` with the numbers of words in the messages, the first inputs.
absl::Status MergeMessages(InferenceContext* c, DimensionHandle* words) {
  int messages;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  for (int i = 0; i < messages; ++i) {
    ShapeHandle message;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 2, &message));
    TF_RETURN_IF_ERROR(c->Merge(*words, c->Dim(message, 1), words));
  }
  return absl::OkStatus();
}

// Reads a codec whose messages have a compact form, and checks that they may
// have so many words.
absl::Status ReadCompactCodec(InferenceContext* c, DimensionHandle words,
                              Codec* codec) {
  TF_RETURN_IF_ERROR(ReadCodec(c, codec));
  TF_RETURN_IF_ERROR(CheckCompactible(*codec));
  if (!c->ValueKnown(words) || BlocksOf(*codec, c->Value(words)) >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("no message of codec ",
                                                 NameOf(*codec), " has ",
                                                 c->Value(words), " words"));
}

}  // namespace

absl::Status EncodeShape(InferenceContext* c) {
  Codec codec;
  int64_t shards;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(ReadCodec(c, &codec));
  TF_RETURN_IF_ERROR(c->GetAttr("shards", &shards));
  TF_RETURN_IF_ERROR(ShardWords(c, 0, codec, &words));
  c->set_output(0, c->Matrix(shards, words));
  return absl::OkStatus();
}

absl::Status DecodeShape(InferenceContext* c) {
  int messages;
  int count;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  TF_RETURN_IF_ERROR(c->GetAttr("K", &count));
  DimensionHandle words = c->UnknownDim();
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  for (int i = 0; i < count; ++i) c->set_output(i, c->input(messages + i));
  return absl::OkStatus();
}

absl::Status ReencodeShape(InferenceContext* c) {
  Codec codec;
  Codec sum_codec;
  int messages;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  TF_RETURN_IF_ERROR(ReadSumCodecs(c, &codec, &sum_codec));
  TF_RETURN_IF_ERROR(ShardWords(c, messages, codec, &words));
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  TF_RETURN_IF_ERROR(ShardWords(c, messages, sum_codec, &words));
  c->set_output(0, c->Matrix(1, words));
  return absl::OkStatus();
}

absl::Status CountShape(InferenceContext* c) {
  Codec codec;
  int64_t replicas;
  DimensionHandle words = c->UnknownDim();
  TF_RETURN_IF_ERROR(ReadCodec(c, /*automatic=*/false, &codec));
  TF_RETURN_IF_ERROR(c->GetAttr("replicas", &replicas));
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  if (c->ValueKnown(words)) {
    const int64_t blocks = BlocksOf(codec, c->Value(words));
    if (blocks < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no message with a fixed threshold has ", c->Value(words), " words"));
    }
    const Codec counts = CountsCodec(BitsOfCount(replicas));
    words = c->MakeDim(LayoutOf(counts, blocks).words());
  }
  c->set_output(0, c->Matrix(1, words));
  return absl::OkStatus();
}

absl::Status PackShape(InferenceContext* c) {
  Codec codec;
  ShapeHandle messages;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &messages));
  const DimensionHandle words = c->Dim(messages, 1);
  TF_RETURN_IF_ERROR(ReadCompactCodec(c, words, &codec));
  DimensionHandle capacity = c->UnknownDim();
  if (c->ValueKnown(words)) {
    const int64_t blocks = BlocksOf(codec, c->Value(words));
    capacity = c->MakeDim(PackCapacity(codec, LayoutOf(codec, blocks)) /
                          static_cast<int64_t>(sizeof(WireWord)));
  }
  c->set_output(0, c->Matrix(c->Dim(messages, 0), capacity));
  c->set_output(1, c->Vector(c->Dim(messages, 0)));
  return absl::OkStatus();
}

absl::Status UnpackShape(InferenceContext* c) {
  Codec codec;
  ShapeHandle compact;
  ShapeHandle scalar;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &compact));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &words));
  TF_RETURN_IF_ERROR(ReadCompactCodec(c, words, &codec));
  c->set_output(0, c->Matrix(c->Dim(compact, 0), words));
  return absl::OkStatus();
}

}  // namespace tf_gc
