// Fuzz target of the codec library: the calls that codec.h allows, with any
// bytes as messages, and the sizes of wire.h for any numbers.
// The other fuzz_*.cc have the calls of other headers.

#include <sys/mman.h>

#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/wire/wire.h"
#include "tests/sanitize/fuzz.h"

namespace tf_gc {
namespace {

constexpr Codec kCodecs[] = {Codec::kTwoBitFixed, Codec::kTwoBitAuto,
                             Codec::kOneBitFixed, Codec::kOneBitAuto,
                             Codec::kThreeBit,    Codec::kFourBit};
constexpr Codec kFixedCodecs[] = {Codec::kTwoBitFixed, Codec::kOneBitFixed};
constexpr int kCountBits[] = {4, 8, 16};
constexpr uint16_t kFixedScales[] = {0x3f80, kScaleNaN};

int64_t ShiftOf(Input* input) { return input->Coin() ? input->Below(9) : 0; }

// Sizes with and without a partial last block, and with none.
int64_t SizeOf(Input* input) {
  const int64_t blocks = input->Below(input->Coin() ? 3 : 40);
  return blocks * kBlockSize + (input->Coin() ? input->Below(kBlockSize) : 0);
}

// One that the codec allows.
float ThresholdOf(Codec codec, Input* input) {
  const uint32_t exponent = 1 + input->Below(246);  // up to 2^119
  const float magnitude =
      BitCast<float>(exponent << 23 | (input->Value<uint32_t>() & 0x7fffff));
  if (codec == Codec::kTwoBitFixed) return input->Coin() ? 0.5f : magnitude;
  if (codec == Codec::kOneBitFixed) return input->Coin() ? 0 : -magnitude;
  return 0;
}

// Any bits, or finite values, or equal ones.
template <typename T>
void FillValues(Input* input, const Array<T>& values) {
  const int64_t style = input->Below(3);
  values.Fill(input);
  if (style == 0) return;
  for (int64_t i = 0; i < values.size(); ++i) {
    // The magnitude is well below 2^120 then, or 2^16 for a Half.
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(&values[i]);
    bytes[sizeof(T) - 1] &= 0xbf;
    if (style == 2) values[i] = values[0];
  }
}

// Codes and scales of messages, any bits; at times one byte throughout, so that
// sums get as large as they can.
struct Messages {
  Messages(Codec codec, int64_t blocks, int64_t count, bool valid_scales,
           Input* input) {
    const bool equal = input->Below(4) == 0;
    const uint8_t byte = input->Value<uint8_t>() | (input->Coin() ? 0xff : 0);
    for (int64_t r = 0; r < count; ++r) {
      codes.emplace_back(blocks * CodeBytes(codec), ShiftOf(input));
      scales.emplace_back(HasScales(codec) ? blocks : 0, ShiftOf(input));
      codes[r].Fill(input);
      if (equal) memset(codes[r].data(), byte, codes[r].size());
      scales[r].Fill(input);
      for (int64_t i = 0; valid_scales && i < scales[r].size(); ++i) {
        scales[r][i] = kFixedScales[scales[r][i] % 64 == 0];
      }
      code_pointers.push_back(codes[r].data());
      scale_pointers.push_back(scales[r].data());
    }
  }

  std::vector<Array<uint8_t>> codes;
  std::vector<Array<uint16_t>> scales;
  std::vector<const uint8_t*> code_pointers;
  std::vector<const uint16_t*> scale_pointers;
};

int64_t ReplicasOf(Input* input) {
  // Counts of more than 127 messages are added in parts.
  return input->Below(16) == 0 ? 120 + input->Below(150) : 1 + input->Below(9);
}

template <typename T>
Bytes DecodedSum(Codec codec, const Messages& messages, int64_t size,
                 float threshold, int64_t shift) {
  const Array<T> sum(size, shift);
  DecodeSum(codec, messages.code_pointers.data(),
            messages.scale_pointers.data(), messages.codes.size(), size,
            threshold, sum.data());
  return sum.Bits();
}

template <typename T>
Bytes DecodedCounts(const Array<uint8_t>& counts, int bits, int64_t size,
                    float unit, int64_t shift) {
  const Array<T> sum(size, shift);
  DecodeCounts(counts.data(), bits, size, unit, sum.data());
  return sum.Bits();
}

// Encode(), or Reencode() if there are messages to add.
template <typename T>
void FuzzEncode(Input* input, bool again) {
  const Codec codec = input->OneOf(kCodecs);
  if (again && !IsAuto(codec)) return;
  const int64_t size = SizeOf(input);
  const int64_t blocks = NumBlocks(size);
  const float threshold = ThresholdOf(codec, input);
  const Array<T> gradient(size, ShiftOf(input));
  const Array<float> residual(size, ShiftOf(input));
  FillValues(input, gradient);
  FillValues(input, residual);
  const Messages added(codec, blocks, again ? input->Below(9) : 0, false,
                       input);
  const int64_t shift = ShiftOf(input);
  const bool in_place = input->Coin();
  const Codec sum_codec = again && input->Coin() ? FinerSums(codec) : codec;
  SameForAllTargets([&] {
    Array<float> before(size, shift);
    Array<float> after(size, shift);
    Array<float>& updated = in_place ? before : after;
    before.CopyFrom(residual);
    const Array<uint8_t> codes(blocks * CodeBytes(sum_codec), shift);
    const Array<uint16_t> scales(HasScales(codec) ? blocks : 0, shift);
    if (again) {
      Reencode(codec, sum_codec, added.code_pointers.data(),
               added.scale_pointers.data(), added.codes.size(), gradient.data(),
               before.data(), updated.data(), size, codes.data(),
               scales.data());
    } else {
      Encode(codec, gradient.data(), before.data(), updated.data(), size,
             threshold, codes.data(), scales.data());
    }
    return Join(updated, codes, scales);
  });
}

template <typename T>
void FuzzDecodeSum(Input* input) {
  const Codec codec = input->OneOf(kCodecs);
  const int64_t size = SizeOf(input);
  const float threshold = ThresholdOf(codec, input);
  const Messages messages(codec, NumBlocks(size), ReplicasOf(input), false,
                          input);
  const int64_t shift = ShiftOf(input);
  SameForAllTargets(
      [&] { return DecodedSum<T>(codec, messages, size, threshold, shift); });
}

// Counts of messages, decoded, are the bits of their sum.
template <typename T>
void FuzzCount(Input* input) {
  const Codec codec = input->OneOf(kFixedCodecs);
  const int64_t size = SizeOf(input);
  const float threshold = ThresholdOf(codec, input);
  const int64_t replicas = ReplicasOf(input);
  const int64_t blocks = NumBlocks(size);
  const Messages messages(codec, blocks, replicas, true, input);
  const int bits = std::max(input->OneOf(kCountBits), BitsOfCount(replicas));
  const int64_t shift = ShiftOf(input);
  SameForAllTargets([&] {
    const Array<uint8_t> counts(blocks * CodeBytes(CountsCodec(bits)), shift);
    Count(codec, messages.code_pointers.data(), messages.scale_pointers.data(),
          replicas, blocks, bits, counts.data());
    CHECK(DecodedCounts<T>(counts, bits, size, CountUnit(codec, threshold),
                           shift) ==
          DecodedSum<T>(codec, messages, size, threshold, shift));
    return counts.Bits();
  });
}

template <typename T>
void FuzzDecodeCounts(Input* input) {
  const int bits = input->OneOf(kCountBits);
  const int64_t size = SizeOf(input);
  const Array<uint8_t> counts(NumBlocks(size) * CodeBytes(CountsCodec(bits)),
                              ShiftOf(input));
  counts.Fill(input);
  const float unit = ThresholdOf(Codec::kTwoBitFixed, input);
  const int64_t shift = ShiftOf(input);
  SameForAllTargets(
      [&] { return DecodedCounts<T>(counts, bits, size, unit, shift); });
}

}  // namespace

// Sizes of messages, for any number: UndefinedBehaviorSanitizer sees one that
// does not fit.
void FuzzSizes(Input* input) {
  const Codec codec = static_cast<Codec>(1 + input->Below(9));
  const int64_t words = input->Hostile();
  const int64_t blocks = BlocksOf(codec, words);
  CHECK(blocks == -1 || LayoutOf(codec, blocks).words() == words);

  const int64_t wanted = input->Hostile() & (kMaxBlocks - 1);
  const MessageLayout layout = LayoutOf(codec, wanted);
  CHECK(BlocksOf(codec, layout.words()) == wanted);
  CHECK(layout.size - layout.padding_offset < kMessageAlignment);
  CHECK((layout.padding_offset - layout.codes_offset) / BlockBytes(codec) ==
            wanted ||
        wanted == 0);
}

void FuzzCodec(Input* input) {
  WithType(input, [&](auto type) {
    using T = decltype(type);
    const int64_t call = input->Below(5);
    if (call < 2) return FuzzEncode<T>(input, call == 1);
    if (call == 2) return FuzzDecodeSum<T>(input);
    if (call == 3) return FuzzCount<T>(input);
    FuzzDecodeCounts<T>(input);
  });
}

// Stores that pass by the caches, which AddressSanitizer does not see: the
// pages around the result must not be touched.
void DecodePastTheCaches() {
  constexpr int64_t kPage = 4096;
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr int64_t kSize = kBytes / sizeof(float);
  uint8_t* pages = static_cast<uint8_t*>(
      mmap(nullptr, kBytes + 2 * kPage, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(pages != MAP_FAILED);
  CHECK(mprotect(pages, kPage, PROT_NONE) == 0);
  CHECK(mprotect(pages + kPage + kBytes, kPage, PROT_NONE) == 0);
  float* sum = reinterpret_cast<float*>(pages + kPage);
  Input input(nullptr, 0);
  const Messages messages(Codec::kTwoBitAuto, NumBlocks(kSize), 1, false,
                          &input);
  for (Target target : {Target::kAvx2, Target::kAvx512}) {
    if (!ForceTarget(target)) continue;
    DecodeSum(Codec::kTwoBitAuto, messages.code_pointers.data(),
              messages.scale_pointers.data(), 1, kSize, 0, sum);
  }
  munmap(pages, kBytes + 2 * kPage);
}

}  // namespace tf_gc
