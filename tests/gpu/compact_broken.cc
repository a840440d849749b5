// Packed messages that are broken, and arguments that are refused.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/cuda/compact.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/compact_cases.h"
#include "tests/gpu/gpu_bucket.h"
#include "tests/gpu/tests.h"

namespace tf_gc {
namespace gpu {
namespace {

void TestBroken(bool large) {
  Random random(13);
  for (Codec codec : kCodecs) {
    const Format format = FormatOf(codec);
    const Case cases[] = {{format, 60, 0.1},
                          {format, 130, 0.8, 3, {1, {3}}},
                          {format, 300, 0.8, 2, {1, {2}}},
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
        // All runs of another kind, grouped ones included.
        for (int plane = 0; plane < NumPlanes(codec); ++plane) {
          for (int kind = 0; kind < kKinds; ++kind) {
            bytes = compact;
            uint8_t* const counts =
                &bytes[segments + layout.counts_offset + plane * kKinds];
            std::fill_n(counts, kKinds, uint8_t{0});
            counts[kind] = 255;
            ExpectAsOnCpu(which, bytes, "another kind");
          }
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
      // Without periods most bits are sent as they are.
      if (broken == 0 && which.periods.count > 0) {
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
        Periods{2, {1, kSegmentBlocks + 1}}, Periods{1, {-3}}}) {
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

void TestBrokenCompact(bool large) {
  TestRefused();
  TestBroken(large);
}

}  // namespace gpu
}  // namespace tf_gc
