// The GPU's results have the bits of the CPU's.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "custom_ops/lib/cuda/codec.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/gpu_bucket.h"
#include "tests/gpu/tests.h"

namespace tf_gc::gpu {
namespace {

const std::vector<Codec> kFixed = {Codec::kTwoBitFixed, Codec::kOneBitFixed};
const std::vector<Codec> kAuto = {Codec::kTwoBitAuto, Codec::kOneBitAuto,
                                  Codec::kThreeBit, Codec::kFourBit,
                                  Codec::kEightBit};
const std::vector<Codec> kCodecs = {Codec::kTwoBitFixed, Codec::kTwoBitAuto,
                                    Codec::kOneBitFixed, Codec::kOneBitAuto,
                                    Codec::kThreeBit,    Codec::kFourBit,
                                    Codec::kEightBit};

const std::vector<int64_t> kSizes = {0,   1,   3,   4,   5,   15,  16,   17,
                                     127, 128, 129, 255, 256, 509, 1021, 7919};

// The sizes of the tensors of each bucket that is tried.
std::vector<std::vector<int64_t>> BucketSizes(Codec codec, bool large) {
  std::vector<std::vector<int64_t>> buckets = {
      {0}, {1}, {127}, {128}, {129}, {0, 0, 300, 0}, kSizes};
  // More tensors than one launch takes. With few codecs: launches do not depend
  // on the codec, and each tensor is an allocation of its own.
  if (codec == Codec::kTwoBitAuto || codec == Codec::kOneBitFixed) {
    buckets.push_back(std::vector<int64_t>(260, 1));
    if (large) buckets.push_back(std::vector<int64_t>(600, 130));
  }
  if (large) {
    for (int64_t size : kSizes) buckets.push_back({size});
    buckets.push_back({65'537, 999'983});
  }
  return buckets;
}

std::string Name(const char* op, const Format& format, DType dtype,
                 const std::vector<int64_t>& sizes) {
  return std::string(op) + ": codec " +
         std::to_string(static_cast<int>(format.codec)) + ", dtype " +
         std::to_string(static_cast<int>(dtype)) + ", threshold " +
         std::to_string(format.threshold) + ", " +
         std::to_string(sizes.size()) + " tensors, the last one of " +
         std::to_string(sizes.back());
}

template <typename T, typename R = float>
struct Case {
  Case(Random& random, const std::vector<int64_t>& sizes,
       float threshold = kThreshold) {
    for (int64_t size : sizes) {
      gradients.push_back(RandomGradient<T>(random, size, threshold));
      residuals.push_back(RandomResidual<R>(random, size));
    }
  }

  Tensors<T> gradients;
  Tensors<R> residuals;
};

// Without `keeps` there are no residuals, which is as with zeros.
template <typename T, typename R>
void ExpectEncoded(const Format& format, const Case<T, R>& values,
                   int64_t shards, int64_t skip, bool in_place, size_t shift,
                   const std::string& name, bool keeps = true) {
  Tensors<R> residuals = values.residuals;
  if (!keeps) {
    for (auto& each : residuals) each.assign(each.size(), R{});
  }
  const Inputs<T, R> inputs(values.gradients, residuals, in_place, shift);
  std::vector<Gradient> table = inputs.table;
  for (Gradient& tensor : table) {
    if (!keeps) tensor.residual_in = tensor.residual_out = nullptr;
  }
  const Bytes expected =
      EncodeOnCpu(format, values.gradients, shards, skip, &residuals);
  const Array<uint8_t> messages(expected.size());
  Check(Encode(format.codec, DTypeOf<T>(), table.data(), inputs.count(), shards,
               skip, format.threshold, messages.data(), nullptr),
        "Encode");
  ExpectSame(messages.Read(), expected, name);
  if (keeps) inputs.Expect(residuals, name);
}

template <typename T, typename R = float>
void TestEncode(bool large) {
  Random random(1);
  const bool wide = sizeof(R) == sizeof(float);  // fixed codecs keep float32
  for (Codec codec : wide ? kCodecs : kAuto) {
    const Format format = FormatOf(codec);
    for (const auto& sizes : BucketSizes(format.codec, large)) {
      const Case<T, R> values(random, sizes);
      const std::string name = Name("encode", format, DTypeOf<T>(), sizes);
      ExpectEncoded(format, values, 2, -1, true, 0,
                    name + ", without residuals",
                    /*keeps=*/false);
      for (bool in_place : {true, false}) {
        for (size_t shift : {0, 1, 3}) {
          ExpectEncoded(format, values, 1, -1, in_place, shift, name);
        }
        ExpectEncoded(format, values, 3, -1, in_place, 0, name);
        if (!IsAuto(codec)) continue;
        for (int64_t skip : {0, 1, 4}) {
          ExpectEncoded(format, values, 5, skip, in_place, 0, name);
        }
      }
    }
  }
  if (!wide) return;
  for (Codec codec : kFixed) {
    for (float threshold : {0x1p-126f, 1e-10f, 0.3f, 65504.0f, 0x1.8p119f}) {
      const Format format = FormatOf(codec, threshold);
      const Case<T> values(random, {1000}, threshold);
      ExpectEncoded(format, values, 1, -1, true, 0,
                    Name("encode", format, DTypeOf<T>(), {1000}));
    }
  }
  const Format negative = FormatOf(Codec::kOneBitFixed, -0.25f);
  ExpectEncoded(negative, Case<T>(random, {1000}), 1, -1, true, 0,
                Name("encode", negative, DTypeOf<T>(), {1000}));
}

// Messages that were encoded, and one of random bytes.
template <typename T>
std::vector<Bytes> Messages(Random& random, const Format& format,
                            const std::vector<int64_t>& sizes, int64_t shard,
                            int64_t shards, int64_t count) {
  std::vector<Bytes> rows;
  for (int64_t i = 0; i < count; ++i) {
    Case<T> values(random, sizes);
    const MessageLayout layout =
        format.Layout(ShardBlocks(BucketOf(values.gradients).blocks(), shards));
    if (i == 2) {
      rows.push_back(HostileMessage(random, format, layout.blocks));
      continue;
    }
    const Bytes all =
        EncodeOnCpu(format, values.gradients, shards, -1, &values.residuals);
    const uint8_t* first = all.data() + shard * layout.size;
    rows.emplace_back(first, first + layout.size);
  }
  return rows;
}

template <typename T>
Tensors<T> Empty(const std::vector<int64_t>& sizes) {
  Tensors<T> tensors;
  for (int64_t size : sizes) tensors.emplace_back(size);
  return tensors;
}

// Compares what DecodeSum() or DecodeShards() makes of the rows.
template <typename T, typename Decode>
void ExpectSums(Decode* decode, const Format& format,
                const std::vector<Bytes>& rows, const Tensors<T>& expected,
                const std::string& name) {
  for (size_t shift : {0, 1, 3}) {
    const DeviceRows device(rows, shift + 1);
    const Outputs<T> outputs(expected, shift);
    Check(decode(format.codec, DTypeOf<T>(), device.table.data(),
                 device.count(), outputs.table.data(), outputs.count(),
                 format.threshold, nullptr),
          name.c_str());
    outputs.Expect(expected, name);
  }
}

template <typename T>
void TestDecode(bool large) {
  Random random(3);
  for (Codec codec : kCodecs) {
    const Format format = FormatOf(codec, 0.3f);
    for (const auto& sizes : BucketSizes(format.codec, large)) {
      const std::string name = Name("decode", format, DTypeOf<T>(), sizes);
      for (int64_t replicas : {1, 2, 3, 5, 8}) {
        const std::vector<Bytes> rows =
            Messages<T>(random, format, sizes, 0, 1, replicas);
        Tensors<T> expected = Empty<T>(sizes);
        DecodeOnCpu(format, rows, &expected);
        ExpectSums(DecodeSum, format, rows, expected, name);
      }
    }
  }
}

template <typename T, typename R = float>
void TestReencode(const Format& format, const Format& of_sum, bool large) {
  Random random(5);
  for (const auto& sizes : BucketSizes(format.codec, large)) {
    const std::string name = Name("reencode", format, DTypeOf<T>(), sizes);
    for (int64_t others : {0, 1, 2, 5}) {
      const int64_t shards = others + 1;
      const int64_t shard = others / 2;
      const Case<T, R> values(random, sizes);
      const std::vector<Bytes> rows =
          Messages<T>(random, format, sizes, shard, shards, others);
      Tensors<R> residuals = values.residuals;
      const Bytes expected = ReencodeOnCpu(
          format, of_sum, rows, values.gradients, shard, shards, &residuals);
      for (bool in_place : {true, false}) {
        for (size_t shift : {0, 1}) {
          const DeviceRows device(rows, shift + 1);
          const Inputs<T, R> inputs(values.gradients, values.residuals,
                                    in_place, shift);
          const Array<uint8_t> message(expected.size());
          Check(
              Reencode(format.codec, of_sum.codec, DTypeOf<T>(),
                       device.table.data(), others, inputs.table.data(),
                       inputs.count(), shard, shards, message.data(), nullptr),
              "Reencode");
          ExpectSame(message.Read(), expected, name);
          inputs.Expect(residuals, name);
        }
      }
    }
  }
}

template <typename T>
void TestDecodeShards(bool large) {
  Random random(6);
  std::vector<Format> formats;
  for (Codec codec : kAuto) formats.push_back(FormatOf(codec));
  for (int bits : {4, 8, 16}) {
    for (float unit : {1.0f, 0.3f, 0x1p-126f, 3.0e36f}) {
      formats.push_back({CountsCodec(bits), unit});
    }
  }
  for (const Format& format : formats) {
    for (const auto& sizes : BucketSizes(format.codec, large)) {
      for (int64_t shards : {1, 2, 5}) {
        Tensors<T> expected = Empty<T>(sizes);
        const int64_t blocks = ShardBlocks(BucketOf(expected).blocks(), shards);
        std::vector<Bytes> rows;
        for (int64_t i = 0; i < shards; ++i) {
          rows.push_back(HostileMessage(random, format, blocks));
        }
        DecodeShardsOnCpu(format, rows, &expected);
        ExpectSums(DecodeShards, format, rows, expected,
                   Name("decode shards", format, DTypeOf<T>(), sizes));
      }
    }
  }
}

void TestCount() {
  Random random(7);
  for (Codec codec : kFixed) {
    const Format format = FormatOf(codec, 0.3f);
    for (int64_t replicas : {1, 2, 3, 7, 8, 127, 128, 129, 300}) {
      for (int64_t blocks : {0, 1, 2, 37}) {
        std::vector<Bytes> rows;
        for (int64_t i = 0; i < replicas; ++i) {
          rows.push_back(HostileMessage(random, format, blocks));
          if (i % 3 != 0) continue;
          // One that is all plus: the largest counts.
          const MessageLayout layout = format.Layout(blocks);
          std::fill(rows.back().begin() + layout.codes_offset,
                    rows.back().begin() + layout.scales_offset, 0xff);
        }
        if (replicas % 2 == 0 && HasScales(codec)) {  // No NaN.
          for (Bytes& row : rows) {
            for (int64_t i = 0; i < blocks; ++i) {
              *format.Layout(blocks).Scales(row.data(), i) = 0x3f80;
            }
          }
        }
        const Bytes expected = CountOnCpu(format, rows, blocks);
        const DeviceRows device(rows, static_cast<size_t>(replicas + 4) / 5);
        const Array<uint8_t> message(expected.size());
        Check(Count(format.codec, format.threshold, device.table.data(),
                    replicas, blocks, message.data(), nullptr),
              "Count");
        ExpectSame(message.Read(), expected,
                   Name("count", format, DType::kFloat, {blocks, replicas}));
      }
    }
  }
}

template <typename T>
void TestType(bool large) {
  TestEncode<T>(large);
  TestDecode<T>(large);
  TestDecodeShards<T>(large);
  for (Codec codec : kAuto) {
    for (Codec sum_codec : kAuto) {
      if (!SumsIn(codec, sum_codec)) continue;
      TestReencode<T>(FormatOf(codec), FormatOf(sum_codec), large);
    }
  }
}

}  // namespace

void TestParity(bool large) {
  TestType<float>(large);
  TestType<Half>(large);
  TestType<BFloat16>(large);
  TestEncode<float, BFloat16>(large);
  TestEncode<float, EightBitResiduals>(large);
  const auto three_bits = FormatOf(Codec::kThreeBit);
  const auto four_bits = FormatOf(Codec::kFourBit);
  TestReencode<float, BFloat16>(three_bits, four_bits, large);
  TestReencode<float, EightBitResiduals>(three_bits, four_bits, large);
  TestCount();
}

}  // namespace tf_gc::gpu
