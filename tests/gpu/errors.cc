// Messages that are not what was expected, and calls that cannot be served.

#include <cmath>
#include <cstdint>
#include <vector>

#include "custom_ops/lib/cuda/codec.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/gpu_bucket.h"
#include "tests/gpu/tests.h"

namespace tf_gc::gpu {
namespace {

void Expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

// Changes each byte of the header of one of several messages. All that is
// decoded, encoded again or counted is "not finite" then.
void TestWrongHeaders() {
  Random random(8);
  const int64_t size = 1000;
  const int64_t blocks = NumBlocks(size);
  for (size_t byte = 0; byte < sizeof(MessageHeader); ++byte) {
    const Format format = FormatOf(Codec::kTwoBitAuto);
    std::vector<Bytes> rows(3, Frames(format, blocks, 1));
    rows[byte % 3][byte] ^= 1;
    const DeviceRows device(rows, 2);

    const Tensors<float> not_numbers = {
        std::vector<float>(size, BitCast<float>(kNaNBits))};
    const Outputs<float> outputs(not_numbers, 0);
    Check(DecodeSum(format.codec, DType::kFloat, device.table.data(), 3,
                    outputs.table.data(), 1, 0.0f, nullptr),
          "DecodeSum");
    outputs.Expect(not_numbers, "decode of a wrong header");

    const Tensors<float> zeros = {std::vector<float>(size)};
    const Tensors<float> residuals = {RandomResidual(random, size)};
    const Inputs<float> inputs(zeros, residuals, false, 0);
    const Array<uint8_t> message(format.Layout(blocks).size);
    Check(
        Reencode(format.codec, format.codec, DType::kFloat, device.table.data(),
                 3, inputs.table.data(), 1, 0, 1, message.data(), nullptr),
        "Reencode");
    inputs.Expect(residuals, "reencode of a wrong header");
    Tensors<float> decoded = zeros;
    DecodeOnCpu(format, {message.Read()}, &decoded);
    ExpectSame(decoded[0], not_numbers[0], "reencode of a wrong header");

    const Format fixed = FormatOf(Codec::kOneBitFixed);
    std::vector<Bytes> fixed_rows(3, Frames(fixed, blocks, 1));
    fixed_rows[byte % 3][byte] ^= 1;
    const DeviceRows fixed_device(fixed_rows, 3);
    const Format counts = CountsFormat(fixed, 3);
    Bytes expected = Frames(counts, blocks, 1);
    const MessageLayout layout = counts.Layout(blocks);
    std::fill(expected.begin() + layout.codes_offset,
              expected.begin() + layout.padding_offset, 0x88);
    const Array<uint8_t> counted(expected.size());
    Check(Count(fixed.codec, fixed.threshold, fixed_device.table.data(), 3,
                blocks, counted.data(), nullptr),
          "Count");
    ExpectSame(counted.Read(), expected, "count of a wrong header");
  }
}

void TestRefusals() {
  const Format format = FormatOf(Codec::kTwoBitAuto);
  std::vector<Bytes> rows(kMaxRowGroups + 1, Frames(format, 1, 1));
  const DeviceRows apart(rows, 1);
  const Tensors<float> like = {std::vector<float>(kBlockSize)};
  const Outputs<float> outputs(like, 0);
  const auto decode = [&](const uint8_t* const* table, int64_t count) {
    return DecodeSum(format.codec, DType::kFloat, table, count,
                     outputs.table.data(), 1, 0.0f, nullptr);
  };
  Expect(decode(apart.table.data(), kMaxRowGroups) == cudaSuccess,
         "as many groups of rows as there may be");
  Expect(decode(apart.table.data(), kMaxRowGroups + 1) == cudaErrorInvalidValue,
         "one group of rows more is an error");
  const DeviceRows together(rows, rows.size());
  Expect(decode(together.table.data(), together.count()) == cudaSuccess,
         "rows that follow each other are one group");
  Expect(decode(nullptr, 0) == cudaErrorInvalidValue, "no row is an error");
  const uint8_t* misaligned = apart.table[0] + 8;
  Expect(decode(&misaligned, 1) == cudaErrorMisalignedAddress,
         "a misaligned row is an error");
  const Sum huge = {nullptr, int64_t{1} << 40};
  Expect(DecodeSum(format.codec, DType::kFloat, apart.table.data(), 1, &huge, 1,
                   0.0f, nullptr) == cudaErrorInvalidValue,
         "too many blocks are an error");
  Check(cudaDeviceSynchronize(), "after the refusals");
}

// Every function refuses what is no codec, or not one that it takes.
void TestUnknownCodecs() {
  const std::vector<Bytes> rows(1, Frames(FormatOf(Codec::kTwoBitAuto), 1, 1));
  const DeviceRows device(rows, 1);
  const Tensors<float> like = {std::vector<float>(kBlockSize)};
  const Outputs<float> outputs(like, 0);
  const Inputs<float> inputs(like, like, false, 0);
  const Array<uint8_t> message(rows[0].size());
  const auto refuses = [](int error, const char* what) {
    Expect(error == cudaErrorInvalidValue, what);
  };
  const auto count = [&](Codec codec) {
    return Count(codec, 0.5f, device.table.data(), 1, 1, message.data(),
                 nullptr);
  };
  const auto reencode = [&](Codec codec) {
    return Reencode(codec, codec, DType::kFloat, device.table.data(), 1,
                    inputs.table.data(), 1, 0, 1, message.data(), nullptr);
  };
  const auto decode = [&](Codec codec, auto* function) {
    return function(codec, DType::kFloat, device.table.data(), 1,
                    outputs.table.data(), 1, 0.0f, nullptr);
  };
  for (const int number : {0, 3, kEndOfCodecs, 99, 255}) {
    const auto codec = static_cast<Codec>(number);
    refuses(Encode(codec, DType::kFloat, inputs.table.data(), 1, 1, -1, 0.0f,
                   message.data(), nullptr),
            "Encode refuses an unknown codec");
    refuses(decode(codec, DecodeSum), "DecodeSum refuses an unknown codec");
    refuses(count(codec), "Count refuses an unknown codec");
    refuses(reencode(codec), "Reencode refuses an unknown codec");
    if (IsCounts(codec)) continue;
    refuses(decode(codec, DecodeShards),
            "DecodeShards refuses an unknown codec");
  }
  refuses(count(Codec::kTwoBitAuto), "automatic messages are not counted");
  refuses(reencode(Codec::kOneBitFixed), "fixed messages are not reencoded");
  refuses(decode(Codec::kTwoBitFixed, DecodeShards),
          "a sum is not of a fixed codec");
  Check(cudaDeviceSynchronize(), "after the unknown codecs");
}

}  // namespace

void TestErrors() {
  TestWrongHeaders();
  TestRefusals();
  TestUnknownCodecs();
}

}  // namespace tf_gc::gpu
