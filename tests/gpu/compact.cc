// The GPU packs messages to the bytes of the CPU, and unpacks them. What the
// CPU calls broken the GPU does, too.

#include "custom_ops/lib/cuda/compact.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/compact_cases.h"
#include "tests/gpu/gpu_bucket.h"
#include "tests/gpu/tests.h"

namespace tf_gc {
namespace gpu {
namespace {

void TestPack(bool large) {
  Random random(11);
  std::vector<int64_t> sizes = {0, 1, 6, 7, 8, 31, 64, 127, 128};
  std::vector<int64_t> many = {1023, 1024, 1025, 2 * 1024 + 77};
  if (large) many.insert(many.end(), {20'000, 100'003});
  for (Codec codec : kCodecs) {
    const Format format = FormatOf(codec);
    for (int64_t blocks : sizes) {
      for (double density : {0.0, 0.2, 1.0}) {
        const Case which = {format, blocks, density};
        ExpectPacked(which, MessageOf(random, which), "pack");
      }
    }
    double density = 0;
    for (int64_t blocks : many) {
      const Case which = {format, blocks, density};
      ExpectPacked(which, MessageOf(random, which), "pack");
      density = density == 0 ? 0.01 : 5 * density;  // 0, 0.01, 0.05, 0.25, 1.25
      if (density > 1) density = 1;
    }
  }
}

// The period of a packed message's first segment.
uint32_t PeriodOf(const Bytes& compact) {
  return reinterpret_cast<const SegmentHeader*>(&compact[kSegmentsOffset])
      ->period;
}

// The only kind of a plane's runs in a packed message of one segment.
int OnlyKindOf(const Case& which, const Bytes& compact, int plane) {
  const auto* header =
      reinterpret_cast<const SegmentHeader*>(&compact[kSegmentsOffset]);
  const SegmentLayout layout =
      LayoutOf(which.format.codec, which.blocks, *header);
  return OnlyKind(&compact[SegmentsStart(which.blocks) + layout.counts_offset +
                           plane * kKinds]);
}

// The only kind of a plane where so many codes of each run are not zero, and
// all bits of these are 1.
int ExpectedKind(const Case& which, int nonzeros, int plane) {
  const int run = static_cast<int>(kRun);
  if (plane == 0) return KindOf(nonzeros, run);
  const int of_all = KindOfAll(which.format.codec, plane, which.periods);
  if (of_all < kKinds) return of_all;
  return KindOf(nonzeros, nonzeros);
}

// Planes whose runs are all of one kind.
void TestOneKind() {
  const int run = static_cast<int>(kRun);
  for (Codec codec : kCodecs) {
    for (const Periods& periods : {Periods{}, Periods{1, {1}}}) {
      const Case which = {FormatOf(codec), 200, 1, 0, periods};
      const MessageLayout layout = which.Layout();
      const int ones = (1 << CodeBits(codec)) - 1;
      // Packs a message that has a code where `is_nonzero` says so.
      const auto pack = [&](int code, auto is_nonzero) {
        Bytes message = Frames(which.format, which.blocks, 1);
        for (int block = 0; block < which.blocks; ++block) {
          if (HasScales(codec)) *layout.Scales(message.data(), block) = 0x3c00;
          for (int i = 0; i < kBlockSize; ++i) {
            if (!is_nonzero(block, i)) continue;
            SetCode(codec, i, code, layout.Codes(message.data(), block));
          }
        }
        return ExpectPacked(which, message, "one kind");
      };
      for (int nonzeros : {0, 4, 16, 32, 48, 60, run}) {
        const Bytes compact = pack(ones, [=](int block, int i) {
          return (block + i) % run < nonzeros;
        });
        // Without periods, rare bits that are all 1 take more bits than they
        // are.
        const auto* header =
            reinterpret_cast<const MessageHeader*>(compact.data());
        if (header->magic != kCompactMagic) {
          if (periods.count != 0 || !HasRareBits(codec)) Fail(which, "longer");
          continue;
        }
        for (int plane = 0; plane < NumPlanes(codec); ++plane) {
          if (OnlyKindOf(which, compact, plane) !=
              ExpectedKind(which, nonzeros, plane)) {
            Fail(which, "another kind");
          }
        }
      }
      // Columns, a third of which has codes. No sign is 1.
      const int sign =
          InPlanes(CodeBits(codec)) ? 1 << MagnitudeBits(codec) : 1;
      const Bytes compact =
          pack(ones - sign, [](int, int i) { return i % 3 == 0; });
      const bool chosen = PeriodOf(compact) != 0;
      if (chosen != (periods.count != 0)) Fail(which, "another period");
      if (chosen && (OnlyKindOf(which, compact, 0) != kKinds ||
                     OnlyKindOf(which, compact, 1) != 2 * kEqual)) {
        Fail(which, "other kinds");
      }
    }
  }
}

// Messages of matrices, packed with the period of their rows and with others.
void TestColumns(bool large) {
  Random random(14);
  const std::vector<Periods> all = {
      {1, {1}}, {1, {3}}, {1, {16}}, {1, {64}}, {4, {1, 3, 16, 64}}};
  std::vector<int64_t> sizes = {1, 63, 64, 65, 200};
  if (large) sizes.push_back(100'003);
  for (Codec codec : kCodecs) {
    const Format format = FormatOf(codec);
    for (const Periods& periods : all) {
      const int columns = periods.values[periods.count / 2];
      for (int64_t blocks : sizes) {
        const Case which = {format, blocks, 0.9, columns, periods};
        ExpectPacked(which, MessageOf(random, which), "columns");
      }
    }
    // Several segments, the last one without tiles. Of equals the first period
    // is taken, and none is if there are no columns.
    const int64_t many = 2 * kSegmentBlocks + 50;
    const Case which = {format, many, 0.9, 3, {4, {5, 3, 7, 1024}}};
    const Bytes compact =
        ExpectPacked(which, MessageOf(random, which), "columns");
    if (PeriodOf(compact) != 3) Fail(which, "another period");
    Case other = {format, 500, 0.9, 1, {4, {512, 1000, 1024, 500}}};
    const Bytes message = MessageOf(random, other);
    if (PeriodOf(ExpectPacked(other, message, "columns")) != 512) {
      Fail(other, "another period");
    }
    other = {format, 500, 0.1, 0, {1, {128}}};
    ExpectPacked(other, MessageOf(random, other), "no columns");
  }
}

// Segments that are not coded, each for another reason, between those that are.
void TestPlainSegments() {
  Random random(12);
  for (Codec codec : kCodecs) {
    const Case which = {FormatOf(codec), 5 * kSegmentBlocks + 9, 0.1};
    const MessageLayout layout = which.Layout();
    Bytes message = MessageOf(random, which);
    uint8_t* const second = layout.Codes(message.data(), kSegmentBlocks + 700);
    std::memset(second, 0, layout.code_bytes);
    SetCode(codec, 77,
            InPlanes(CodeBits(codec)) ? 1 << MagnitudeBits(codec)
                                      : int{kCodeNotFinite},
            second);
    if (HasScales(codec)) {
      *layout.Scales(message.data(), 3 * kSegmentBlocks - 1) |= 0x8000;
    }
    // A block that would be empty but for a code, or for its scale.
    const int64_t fourth = 3 * kSegmentBlocks + 33;
    if (codec == Codec::kThreeBit) {
      SetCode(codec, 5, 1, layout.Codes(message.data(), fourth));
      *layout.Scales(message.data(), fourth) = 0;
    } else if (HasScales(codec)) {
      std::memset(layout.Codes(message.data(), fourth), 0, layout.code_bytes);
      *layout.Scales(message.data(), fourth) = 1;
    }
    // Random codes without "not finite".
    const Case dense = {which.format, which.blocks, 0.9};
    const Bytes random_codes = MessageOf(random, dense);
    const int64_t last =
        layout.codes_offset + 4 * kSegmentBlocks * layout.code_bytes;
    std::copy(random_codes.begin() + last,
              random_codes.begin() + layout.scales_offset,
              message.begin() + last);
    if (HasScales(codec)) {
      const int64_t block = 4 * kSegmentBlocks;
      std::copy(layout.Scales(random_codes.data(), block),
                layout.Scales(random_codes.data(), which.blocks),
                layout.Scales(message.data(), block));
    }
    const Bytes compact = ExpectPacked(which, message, "plain segments");
    if (compact.size() >= message.size()) {
      Fail(which, "not packed");
    }
    for (size_t field = 1; field < 4; ++field) {
      Bytes bytes = compact;
      bytes[kSegmentsOffset + sizeof(SegmentHeader) + 4 * field] = 1;
      if (ExpectAsOnCpu(which, bytes, "a field of a plain segment"))
        Fail(which, "whole");
    }
    const Bytes hostile = HostileMessage(random, which.format, 1500);
    ExpectPacked({which.format, 1500, 1}, hostile, "incompressible");
  }
}

// Bits that end with a word, and half blocks after them that have none.
void TestFullWords() {
  for (Codec codec : kCodecs) {
    const Case which = {FormatOf(codec), 60, 0.1};
    const MessageLayout layout = which.Layout();
    Bytes message = Frames(which.format, which.blocks, 1);
    for (int64_t i = 0; i < 10 * kBlockSize; i += 2) {
      SetCode(codec, i % kBlockSize, (1 << CodeBits(codec)) - 1,
              layout.Codes(message.data(), i / kBlockSize));
    }
    // After the codes come blocks that have a scale only, then empty ones.
    for (int64_t i = 0; HasScales(codec) && i < 20; ++i) {
      *layout.Scales(message.data(), i) = 0x3c00;
    }
    const Bytes compact = ExpectPacked(which, message, "full words");
    if (compact.size() >= message.size()) Fail(which, "not packed");
  }
}

void TestBroken(bool large) {
  Random random(13);
  for (Codec codec : kCodecs) {
    const Format format = FormatOf(codec);
    const Case cases[] = {{format, 60, 0.1},
                          {format, 130, 0.8, 3, {1, {3}}},
                          {format, kSegmentBlocks + 5, 0.1}};
    for (const Case& which : cases) {
      const int64_t blocks = which.blocks;
      const bool small = blocks < kSegmentBlocks;
      const Bytes message = MessageOf(random, which);
      const Bytes compact = PackOnCpu(which, message);
      const auto changed = [&](int64_t byte, uint8_t bits) {
        Bytes bytes = compact;
        bytes[byte] ^= bits;
        return ExpectAsOnCpu(which, bytes,
                             "byte " + std::to_string(byte) + " changed");
      };
      const int64_t segments = SegmentsStart(blocks);
      if (small) {
        for (int64_t i = 0; i < kScaleTableOffset; ++i) changed(i, 1);
        for (int64_t i = kSegmentsOffset; i < segments; ++i) {
          changed(i, 1);
          changed(i, 0x80);
        }
        // Still the sum of frequencies, but one of them is 0.
        Bytes bytes = compact;
        uint16_t two[2];
        std::memcpy(two, &bytes[kScaleTableOffset], sizeof(two));
        two[0] = static_cast<uint16_t>(two[0] + two[1]);
        two[1] = 0;
        std::memcpy(&bytes[kScaleTableOffset], two, sizeof(two));
        ExpectAsOnCpu(which, bytes, "a frequency of 0");
        changed(kScaleTableOffset, 1);
        changed(kScaleTableOffset + 7, 1);
        const auto* header =
            reinterpret_cast<const SegmentHeader*>(&compact[kSegmentsOffset]);
        const SegmentLayout layout = LayoutOf(codec, blocks, *header);
        for (int64_t i = layout.counts_offset; i < layout.mixed_offset; ++i) {
          changed(segments + i, 1);
          // A kind that there is not, and none instead of one that there is.
          changed(segments + i, std::max<uint8_t>(compact[segments + i], 2));
        }
        // Words that are left over, and mixed bits.
        const int64_t end = segments + SegmentBytes(codec, blocks, *header);
        for (const bool words : {true, false}) {
          bytes = compact;
          bytes.insert(bytes.begin() + (words ? segments : end), 16, 0);
          auto* longer =
              reinterpret_cast<SegmentHeader*>(&bytes[kSegmentsOffset]);
          (words ? longer->words : longer->mixed) += words ? 8 : 2;
          if (ExpectAsOnCpu(which, bytes, "some are left over")) {
            Fail(which, "whole");
          }
        }
      }
      int broken = 0;
      const int64_t size = static_cast<int64_t>(compact.size());
      for (int i = 0; i < (large ? 300 : small ? 20 : 5); ++i) {
        const int64_t byte = segments + Below(random, size - segments);
        if (!changed(byte, static_cast<uint8_t>(1 + Below(random, 255)))) {
          ++broken;
        }
      }
      if (broken == 0) {
        Fail(which, "nothing is broken");
      }
      for (int64_t end : {int64_t{0}, int64_t{8}, int64_t{16}, kSegmentsOffset,
                          segments, size - 32, size - 16}) {
        Bytes bytes(compact.begin(), compact.begin() + end);
        if (ExpectAsOnCpu(which, bytes, "truncated")) {
          Fail(which, "whole");
        }
        if (end == size - 16) ExpectNotFinite(which, UnpackOnGpu(which, bytes));
      }
      // A message that was copied, and is too short.
      ExpectAsOnCpu(which, message, "copied");
      ExpectAsOnCpu(which, Bytes(message.begin(), message.end() - 16),
                    "copied, truncated");
    }
  }
}

void TestRefused() {
  const Array<uint8_t> memory(4096);
  uint8_t* const at = memory.data();
  const Array<int64_t> bytes(1);
  const Periods none = {};
  const auto expect = [](int error, int expected, const char* what) {
    if (error == expected) return;
    std::fprintf(stderr, "%s: error %d\n", what, error);
    std::exit(1);
  };
  for (int number : {0, 3, 6, 7, 10, 255}) {
    const auto codec = static_cast<Codec>(number);
    expect(Pack(codec, 1, none, at, at, bytes.data(), at, nullptr),
           cudaErrorInvalidValue, "Pack of another codec");
    expect(Unpack(codec, 1, at, 64, at, at, nullptr), cudaErrorInvalidValue,
           "Unpack of another codec");
  }
  constexpr Codec kCodec = Codec::kTwoBitAuto;
  for (int64_t blocks : {int64_t{-1}, int64_t{1} << 30}) {
    expect(Pack(kCodec, blocks, none, at, at, bytes.data(), at, nullptr),
           cudaErrorInvalidValue, "Pack of too many blocks");
    expect(Unpack(kCodec, blocks, at, 64, at, at, nullptr),
           cudaErrorInvalidValue, "Unpack of too many blocks");
  }
  for (const Periods& periods :
       {Periods{-1, {}}, Periods{5, {1, 1, 1, 1}}, Periods{1, {0}},
        Periods{2, {1, 1025}}, Periods{1, {-3}}}) {
    expect(Pack(kCodec, 1, periods, at, at, bytes.data(), at, nullptr),
           cudaErrorInvalidValue, "Pack with periods that there are not");
  }
  expect(Unpack(kCodec, 1, at, -16, at, at, nullptr), cudaErrorInvalidValue,
         "Unpack of a negative size");
  expect(Pack(kCodec, 1, none, at + 8, at, bytes.data(), at, nullptr),
         cudaErrorMisalignedAddress, "Pack of a misaligned message");
  expect(Unpack(kCodec, 1, at + 8, 64, at, at, nullptr),
         cudaErrorMisalignedAddress, "Unpack of misaligned bytes");
}

}  // namespace

void TestCompact(bool large) {
  TestRefused();
  TestPack(large);
  TestOneKind();
  TestColumns(large);
  TestPlainSegments();
  TestFullWords();
  TestBroken(large);
}

}  // namespace gpu
}  // namespace tf_gc
