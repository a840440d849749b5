#include "custom_ops/kernels/message.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"

namespace tf_gc {
namespace {

absl::Status CheckField(const char* name, int64_t found, int64_t expected) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a message has ", name, " ", found,
                   ", and this replica expects ", expected));
}

absl::Status CheckHeader(const MessageHeader& found,
                         const MessageHeader& expected) {
  TF_RETURN_IF_ERROR(
      CheckField("the magic number", found.magic, expected.magic));
  TF_RETURN_IF_ERROR(
      CheckField("wire version", found.version, expected.version));
  TF_RETURN_IF_ERROR(CheckField("codec", found.codec, expected.codec));
  if (found.threshold_bits != expected.threshold_bits) {
    float thresholds[2];
    std::memcpy(&thresholds[0], &found.threshold_bits, sizeof(float));
    std::memcpy(&thresholds[1], &expected.threshold_bits, sizeof(float));
    return absl::InvalidArgumentError(
        absl::StrCat("a message has threshold ", thresholds[0],
                     ", and this replica expects ", thresholds[1]));
  }
  return CheckField("a number of blocks of", found.blocks, expected.blocks);
}

// The format of a codec and the attribute `threshold`.
absl::Status ReadThreshold(OpKernelConstruction* context, Codec codec,
                           MessageFormat* format) {
  float threshold;
  TF_RETURN_IF_ERROR(context->GetAttr("threshold", &threshold));
  // By the bits: a thread that flushes subnormal numbers takes those for 0.
  const bool zero = (BitCast<uint32_t>(threshold) & 0x7fffffffu) == 0;
  bool allowed = zero;
  std::string range = "0 where scales are automatic";
  if (codec == Codec::kTwoBitFixed) {
    allowed = threshold >= kMinMagnitude && threshold < kMaxMagnitude;
    range = absl::StrCat("in [", kMinMagnitude, ", ", kMaxMagnitude,
                         ") for the codec two_bit");
  } else if (codec == Codec::kOneBitFixed) {
    allowed = IsFinite(threshold);
    range = absl::StrCat("in (", -kMaxMagnitude, ", ", kMaxMagnitude,
                         ") for the codec one_bit");
  }
  if (!allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold must be ", range, ", got ", threshold));
  }
  // -0 decides as 0 does, and the headers of their messages must not differ.
  *format = {codec, zero ? 0.0f : threshold};
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadFormat(OpKernelConstruction* context, MessageFormat* format) {
  Codec codec;
  TF_RETURN_IF_ERROR(ReadCodec(context, &codec));
  return ReadThreshold(context, codec, format);
}

absl::Status ReadFixedFormat(OpKernelConstruction* context,
                             MessageFormat* format) {
  Codec codec;
  TF_RETURN_IF_ERROR(ReadCodec(context, /*automatic=*/false, &codec));
  return ReadThreshold(context, codec, format);
}

void MessageFormat::WriteFrame(const MessageLayout& layout, int64_t used,
                               uint8_t* message) const {
  const MessageHeader header = HeaderOf(codec, layout.blocks, threshold);
  std::memcpy(message, &header, sizeof(header));
  const int64_t unused = layout.blocks - used;
  std::memset(layout.Codes(message, used), 0, unused * layout.code_bytes);
  if (HasScales(codec)) {
    std::memset(layout.Scales(message, used), 0, unused * kScaleBytes);
  }
  std::memset(message + layout.padding_offset, 0,
              layout.size - layout.padding_offset);
}

absl::Status MessageFormat::CheckHeaders(
    const std::vector<const uint8_t*>& rows,
    const MessageLayout& layout) const {
  const MessageHeader expected = HeaderOf(codec, layout.blocks, threshold);
  for (const uint8_t* row : rows) {
    MessageHeader found;
    std::memcpy(&found, row, sizeof(found));
    TF_RETURN_IF_ERROR(CheckHeader(found, expected));
  }
  return absl::OkStatus();
}

std::vector<const uint8_t*> RowsOf(const Tensor& matrix, int64_t row_bytes) {
  std::vector<const uint8_t*> rows(matrix.dim_size(0));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<const uint8_t*>(matrix.data()) + i * row_bytes;
  }
  return rows;
}

absl::Status ReadLayout(Codec codec, const Tensor& messages,
                        MessageLayout* layout) {
  if (messages.dims() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("messages must have the shape [rows, words], got ",
                     messages.shape().DebugString()));
  }
  int64_t blocks;
  TF_RETURN_IF_ERROR(ReadBlocks(codec, messages.dim_size(1), &blocks));
  *layout = LayoutOf(codec, blocks);
  return absl::OkStatus();
}

absl::Status FindMessages(const OpInputList& messages,
                          const MessageLayout& layout,
                          std::vector<const uint8_t*>* rows) {
  for (const Tensor& message : messages) {
    if (message.dims() != 2 || message.dim_size(1) != layout.words()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "messages must have the shape [rows, ", layout.words(), "] for ",
          layout.blocks, " blocks, got ", message.shape().DebugString()));
    }
    const std::vector<const uint8_t*> own = RowsOf(message, layout.size);
    rows->insert(rows->end(), own.begin(), own.end());
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const std::vector<const uint8_t*>& rows,
                       const char* name, int64_t expected) {
  const int64_t found = static_cast<int64_t>(rows.size());
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`messages` must hold ",
                                                 expected, " rows, which is `",
                                                 name, "`, got ", found));
}

absl::Status ReadCountsFormat(OpKernelConstruction* context,
                              const MessageFormat& fixed,
                              MessageFormat* counts) {
  int64_t replicas;
  TF_RETURN_IF_ERROR(context->GetAttr("replicas", &replicas));
  if (replicas < 1 || replicas > kMaxReplicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas must be in [1, ", kMaxReplicas,
                     "] for a fixed threshold, got ", replicas));
  }
  *counts = {CountsCodec(BitsOfCount(replicas)),
             CountUnit(fixed.codec, fixed.threshold)};
  return absl::OkStatus();
}

}  // namespace tf_gc
