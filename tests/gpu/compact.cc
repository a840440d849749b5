// The GPU packs messages to the bytes of the CPU, and unpacks them.

#include "custom_ops/lib/cuda/compact.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/compact_cases.h"
#include "tests/gpu/tests.h"

namespace tf_gc {
namespace gpu {
namespace {

void TestPack(bool large) {
  Random random(11);
  std::vector<int64_t> sizes = {0, 1, 6, 7, 8, 31, 64, 127, 128};
  std::vector<int64_t> many = {kSegmentBlocks - 1, kSegmentBlocks,
                               kSegmentBlocks + 1, 2 * kSegmentBlocks + 77};
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

// The only kind of a plane where so many codes of each run are not zero, and
// all bits of these are 1.
int ExpectedKind(const Case& which, int nonzeros, int plane) {
  const int run = static_cast<int>(kRun);
  if (which.periods.count > 0) {
    return KindOf(nonzeros, plane == 0 ? run : nonzeros);
  }
  const bool grouped = plane == 0 && IsGrouped(nonzeros / kGroup, 1);
  return grouped ? kGrouped : 2 * kMixed;
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
        // Without periods, codes that are seldom zero may not get shorter.
        if (!IsCompact(compact)) {
          if (periods.count != 0 || nonzeros < 48) Fail(which, "longer");
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
      const bool chosen = SegmentHeaderOf(compact).period != 0;
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
    const Case which = {format, many, 0.9, 3, {4, {5, 3, 7, kSegmentBlocks}}};
    const Bytes compact =
        ExpectPacked(which, MessageOf(random, which), "columns");
    if (SegmentHeaderOf(compact).period != 3) Fail(which, "another period");
    Case other = {format, 500, 0.9, 1, {4, {512, 1000, 1024, 500}}};
    const Bytes packed =
        ExpectPacked(other, MessageOf(random, other), "columns");
    if (SegmentHeaderOf(packed).period != 512) {
      Fail(other, "another period");
    }
    other = {format, 500, 0.1, 0, {1, {128}}};
    ExpectPacked(other, MessageOf(random, other), "no columns");
  }
}

// Tiles of pairs, blocks after them, and columns that are too short for pairs.
void TestPairs() {
  Random random(15);
  const int64_t pair = 2 * kRun;
  for (Codec codec : kCodecs) {
    for (int period : {1, 3, 16}) {
      for (int64_t blocks : {pair * period - 1, pair * period,
                             pair * period + 77, kSegmentBlocks + 300}) {
        const Case which = {
            FormatOf(codec), blocks, 0.9, period, {1, {period}}};
        const Bytes compact =
            ExpectPacked(which, MessageOf(random, which), "pairs");
        const SegmentHeader& header = SegmentHeaderOf(compact);
        const bool paired = blocks >= pair * period;
        if (header.period != period) Fail(which, "another period");
        if (header.paired != (paired ? 1 : 0)) Fail(which, "not paired");
      }
    }
  }
}

// Rows whose scales are equal, of a few values, or descend, with empty blocks
// among them, in several segments, the last of which has rows of two lengths.
void TestSortedRows() {
  Random random(16);
  for (Codec codec : kCodecs) {
    if (!HasScales(codec)) continue;
    for (int period : {1, 16, 24}) {
      for (int values : {1, 3, 0x7f00}) {
        const Case which = {FormatOf(codec),
                            kSegmentBlocks + 16 * kRun + 5,
                            0.9,
                            period,
                            {1, {period}}};
        const MessageLayout layout = which.Layout();
        Bytes message = MessageOf(random, which);
        for (int64_t block = 0; block < which.blocks; ++block) {
          uint16_t* const scale = layout.Scales(message.data(), block);
          if (*scale == 0) continue;
          *scale = static_cast<uint16_t>(0x7fff - block * 5 % values);
        }
        const Bytes compact = ExpectPacked(which, message, "sorted rows");
        for (int segment : {0, 1}) {
          const auto* header = &SegmentHeaderOf(compact) + segment;
          if (header->period != period) Fail(which, "another period");
        }
      }
    }
  }
}

// A message whose sampled runs, those that a quick packer looks at, have a code
// at each of `sampled` positions of 64, and the other runs at each of `others`.
Bytes SampledMessage(const Case& which, int sampled, int others) {
  const Codec codec = which.format.codec;
  const int code = InPlanes(CodeBits(codec)) ? 1 : int{kCodePlus};
  const MessageLayout layout = which.Layout();
  Bytes message = Frames(which.format, which.blocks, 1);
  for (int64_t block = 0; block < which.blocks; ++block) {
    if (HasScales(codec)) {
      *layout.Scales(message.data(), block) = 0x3c00;
    }
    for (int64_t i = 0; i < kBlockSize; ++i) {
      const bool is_sampled = (block * kHalves + i / kRun) % kSampledRuns == 0;
      // Each group has one before any has another.
      const int64_t in_run = i % kRun;
      const int64_t rank =
          in_run % kGroup * kRunGroups + (in_run / kGroup + block) % kRunGroups;
      if (rank >= (is_sampled ? sampled : others)) continue;
      SetCode(codec, i, code, layout.Codes(message.data(), block));
    }
  }
  return message;
}

// Maps that are grouped, or not, without periods.
void TestGroups() {
  constexpr int64_t kMany = kSegmentBlocks + 3;
  for (Codec codec : kCodecs) {
    for (int64_t blocks : {int64_t{61}, kMany}) {
      const Case which = {FormatOf(codec), blocks, 1};
      const auto expect = [&](int sampled, int others, bool grouped) {
        const Bytes compact = ExpectPacked(
            which, SampledMessage(which, sampled, others), "groups");
        if (!IsCompact(compact) || SegmentHeaderOf(compact).words == 0) {
          if (blocks == kMany) Fail(which, "not packed");
          return;
        }
        if (OnlyKindOf(which, compact, 0) !=
            (grouped ? kGrouped : 2 * kMixed)) {
          Fail(which, "another kind");
        }
      };
      expect(0, 0, true);
      expect(1, 3, true);
      expect(11, 11, true);
      expect(12, 12, false);
      // The sample misleads.
      expect(30, 1, false);
      expect(0, 40, true);
      // With as many codes as there may be at most.
      if (codec == Codec::kTwoBitAuto) expect(0, 53, true);
      // Groups of columns, which no packer of this library makes.
      const Bytes groups = PackOnCpu(which, SampledMessage(which, 1, 3));
      if (!IsCompact(groups) || SegmentHeaderOf(groups).words == 0) continue;
      for (uint16_t paired : {0, 1}) {
        Bytes columns = groups;
        auto* header =
            reinterpret_cast<SegmentHeader*>(&columns[kSegmentsOffset]);
        header->period = 5;
        header->paired = paired;
        if (!ExpectAsOnCpu(which, columns, "groups of columns")) {
          Fail(which, "broken");
        }
      }
    }
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
    for (size_t field :
         {offsetof(SegmentHeader, mixed), offsetof(SegmentHeader, filled),
          offsetof(SegmentHeader, period), offsetof(SegmentHeader, paired)}) {
      Bytes bytes = compact;
      bytes[kSegmentsOffset + sizeof(SegmentHeader) + field] = 1;
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

}  // namespace

void TestCompact(bool large) {
  TestPack(large);
  TestOneKind();
  TestColumns(large);
  TestPairs();
  TestSortedRows();
  TestGroups();
  TestPlainSegments();
  TestFullWords();
}

}  // namespace gpu
}  // namespace tf_gc
