// The GPU packs messages to the bytes of the CPU, and unpacks them. What the
// CPU calls broken the GPU does, too.

#include "custom_ops/lib/cuda/compact.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/gpu_bucket.h"
#include "tests/gpu/tests.h"

namespace tf_gc {
namespace gpu {
namespace {

const std::vector<Codec> kCodecs = {Codec::kTwoBitFixed, Codec::kTwoBitAuto,
                                    Codec::kThreeBit, Codec::kFourBit};

struct Case {
  Format format;
  int64_t blocks;
  double density;  // of codes that are not zero

  MessageLayout Layout() const { return format.Layout(blocks); }
  std::string Name(const std::string& what) const {
    return what + ": codec " + std::to_string(static_cast<int>(format.codec)) +
           ", " + std::to_string(blocks) + " blocks, density " +
           std::to_string(density);
  }
};

// Makes an element's code, which is 0, `code`.
void SetCode(Codec codec, int64_t element, int code, uint8_t* codes) {
  const int64_t byte = element / 8;
  if (!InPlanes(CodeBits(codec))) {
    codes[element / 4] |= static_cast<uint8_t>(code << (3 - element % 4) * 2);
    return;
  }
  for (int plane = 0; plane < CodeBits(codec); ++plane) {
    const int bit = code >> plane & 1;
    codes[plane * kPlaneBytes + byte] |=
        static_cast<uint8_t>(bit << element % 8);
  }
}

// A message whose low levels are the most frequent ones, and whose scales are
// alike. Every fifth block or so is empty.
Bytes MessageOf(Random& random, const Case& which) {
  const Codec codec = which.format.codec;
  const MessageLayout layout = which.Layout();
  Bytes message = Frames(which.format, which.blocks, 1);
  std::bernoulli_distribution nonzero(which.density);
  const int sign = 1 << MagnitudeBits(codec);
  for (int64_t block = 0; block < which.blocks; ++block) {
    if (Below(random, 5) == 0) continue;
    uint8_t* const codes = layout.Codes(message.data(), block);
    for (int64_t i = 0; i < kBlockSize; ++i) {
      if (!nonzero(random)) continue;
      const int minus = static_cast<int>(Below(random, 2));
      const int magnitude =
          static_cast<int>(1 + Below(random, Below(random, sign - 1) + 1));
      SetCode(codec, i,
              InPlanes(CodeBits(codec)) ? magnitude + minus * sign
                                        : (minus != 0 ? kCodeMinus : kCodePlus),
              codes);
    }
    if (!HasScales(codec)) continue;
    *layout.Scales(message.data(), block) =
        static_cast<uint16_t>(0x3c00 + Below(random, 0x200));
  }
  return message;
}

void RunTasksInTurn(int64_t tasks, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < tasks; ++i) task(i);
}

[[noreturn]] void Fail(const Case& which, const char* what) {
  std::fprintf(stderr, "%s\n", which.Name(what).c_str());
  std::exit(1);
}

Bytes PackOnCpu(const Case& which, const Bytes& message) {
  const MessageLayout layout = which.Layout();
  const Codec codec = which.format.codec;
  Bytes compact(PackCapacity(codec, layout));
  compact.resize(
      Pack(codec, layout, message.data(), compact.data(), RunTasksInTurn));
  return compact;
}

bool UnpackOnCpu(const Case& which, const Bytes& compact, Bytes* message) {
  const MessageLayout layout = which.Layout();
  message->assign(layout.size, 0);
  // The CPU, too, wants an alignment that an empty vector may not have.
  alignas(16) static uint8_t nothing[16];
  return Unpack(
      which.format.codec, layout, compact.empty() ? nothing : compact.data(),
      static_cast<int64_t>(compact.size()), message->data(), RunTasksInTurn);
}

Bytes UnpackOnGpu(const Case& which, const Bytes& compact) {
  const Codec codec = which.format.codec;
  const TightBytes input(compact);
  const Array<uint8_t> message(which.Layout().size);
  const Array<uint8_t> space(UnpackSpace(codec, which.blocks));
  Check(Unpack(codec, which.blocks, input.data(),
               static_cast<int64_t>(compact.size()), message.data(),
               space.data(), nullptr),
        "Unpack");
  ExpectSame(input.Read(), compact, which.Name("unpack's input"));
  space.Read();
  return message.Read();
}

// Packs the message, unpacks it and returns it packed.
Bytes ExpectPacked(const Case& which, const Bytes& message,
                   const std::string& what) {
  const std::string name = which.Name(what);
  const Codec codec = which.format.codec;
  const Bytes expected = PackOnCpu(which, message);
  const TightBytes input(message);
  const Array<uint8_t> output(message.size());
  const Array<int64_t> bytes(1);
  const Array<uint8_t> space(PackSpace(codec, which.blocks));
  Check(Pack(codec, which.blocks, input.data(), output.data(), bytes.data(),
             space.data(), nullptr),
        "Pack");
  ExpectSame(bytes.Read(), {static_cast<int64_t>(expected.size())}, name);
  ExpectSame(output.Read(), expected, name);
  ExpectSame(input.Read(), message, name);
  space.Read();
  Bytes longer = expected;
  longer.insert(longer.end(), 48, 0xcd);
  ExpectSame(UnpackOnGpu(which, expected), message, name + ", unpacked");
  ExpectSame(UnpackOnGpu(which, longer), message, name + ", unpacked longer");
  return expected;
}

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

// What decoding gives after a message was unpacked whose bytes are broken.
void ExpectNotFinite(const Case& which, const Bytes& message) {
  const Tensors<float> not_numbers = {
      std::vector<float>(which.blocks * kBlockSize, BitCast<float>(kNaNBits))};
  const DeviceRows rows({message}, 1);
  const Outputs<float> outputs(not_numbers, 0);
  Check(DecodeSum(which.format.codec, DType::kFloat, rows.table.data(), 1,
                  outputs.table.data(), 1, which.format.threshold, nullptr),
        "DecodeSum");
  outputs.Expect(not_numbers, which.Name("decode of broken bytes"));
}

// The GPU makes of the bytes what the CPU does. Returns whether they are whole.
bool ExpectAsOnCpu(const Case& which, const Bytes& compact,
                   const std::string& what) {
  Bytes expected;
  const bool whole = UnpackOnCpu(which, compact, &expected);
  const Bytes message = UnpackOnGpu(which, compact);
  if (whole) {
    ExpectSame(message, expected, which.Name(what));
  } else {
    ExpectSame(Bytes(message.begin(), message.begin() + sizeof(MessageHeader)),
               Bytes(sizeof(MessageHeader)), which.Name(what));
  }
  return whole;
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
    for (int64_t blocks : {int64_t{60}, kSegmentBlocks + 5}) {
      const bool small = blocks < kSegmentBlocks;
      const Case which = {FormatOf(codec), blocks, 0.1};
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
        for (int64_t i = 0; i < kMapTableOffset; ++i) changed(i, 1);
        for (int64_t i = kSegmentsOffset; i < segments; ++i) {
          changed(i, 1);
          changed(i, 0x80);
        }
        for (int64_t offset : {kMapTableOffset, kScaleTableOffset}) {
          // Still the sum of frequencies, but one of them is 0.
          Bytes bytes = compact;
          uint16_t two[2];
          std::memcpy(two, bytes.data() + offset, sizeof(two));
          two[0] = static_cast<uint16_t>(two[0] + two[1]);
          two[1] = 0;
          std::memcpy(bytes.data() + offset, two, sizeof(two));
          ExpectAsOnCpu(which, bytes, "a frequency of 0");
          changed(offset, 1);
          changed(offset + 7, 1);
        }
        // Words that are left over.
        Bytes bytes = compact;
        bytes.insert(bytes.begin() + segments, 16, 0);
        reinterpret_cast<SegmentHeader*>(&bytes[kSegmentsOffset])->words += 8;
        if (ExpectAsOnCpu(which, bytes, "words left over")) {
          Fail(which, "whole");
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
  const auto expect = [](int error, int expected, const char* what) {
    if (error == expected) return;
    std::fprintf(stderr, "%s: error %d\n", what, error);
    std::exit(1);
  };
  for (int number : {0, 3, 6, 7, 10, 255}) {
    const auto codec = static_cast<Codec>(number);
    expect(Pack(codec, 1, at, at, bytes.data(), at, nullptr),
           cudaErrorInvalidValue, "Pack of another codec");
    expect(Unpack(codec, 1, at, 64, at, at, nullptr), cudaErrorInvalidValue,
           "Unpack of another codec");
  }
  constexpr Codec kCodec = Codec::kTwoBitAuto;
  for (int64_t blocks : {int64_t{-1}, int64_t{1} << 30}) {
    expect(Pack(kCodec, blocks, at, at, bytes.data(), at, nullptr),
           cudaErrorInvalidValue, "Pack of too many blocks");
    expect(Unpack(kCodec, blocks, at, 64, at, at, nullptr),
           cudaErrorInvalidValue, "Unpack of too many blocks");
  }
  expect(Unpack(kCodec, 1, at, -16, at, at, nullptr), cudaErrorInvalidValue,
         "Unpack of a negative size");
  expect(Pack(kCodec, 1, at + 8, at, bytes.data(), at, nullptr),
         cudaErrorMisalignedAddress, "Pack of a misaligned message");
  expect(Unpack(kCodec, 1, at + 8, 64, at, at, nullptr),
         cudaErrorMisalignedAddress, "Unpack of misaligned bytes");
}

}  // namespace

void TestCompact(bool large) {
  TestRefused();
  TestPack(large);
  TestPlainSegments();
  TestFullWords();
  TestBroken(large);
}

}  // namespace gpu
}  // namespace tf_gc
