// Messages to pack, what the CPU and the GPU make of them, and comparisons.

#ifndef TF_GC_TESTS_GPU_COMPACT_CASES_H_
#define TF_GC_TESTS_GPU_COMPACT_CASES_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/cuda/compact.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/gpu_bucket.h"

namespace tf_gc {
namespace gpu {

inline const std::vector<Codec> kCodecs = {
    Codec::kTwoBitFixed, Codec::kTwoBitAuto, Codec::kThreeBit, Codec::kFourBit};

struct Case {
  Format format;
  int64_t blocks;
  double density;   // of codes that are not zero
  int columns = 0;  // blocks of a row of a matrix whose columns are alike
  Periods periods = {};

  MessageLayout Layout() const { return format.Layout(blocks); }
  std::string Name(const std::string& what) const {
    return what + ": codec " + std::to_string(static_cast<int>(format.codec)) +
           ", " + std::to_string(blocks) + " blocks, density " +
           std::to_string(density) + ", columns " + std::to_string(columns) +
           ", " + std::to_string(periods.count) + " periods from " +
           std::to_string(periods.values[0]);
  }
};

// Makes an element's code, which is 0, `code`.
inline void SetCode(Codec codec, int64_t element, int code, uint8_t* codes) {
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

// How often the codes at a position are not zero, and are negative then.
struct Chances {
  double nonzero;
  double minus;
};

// Those of the positions of a row of blocks. Without columns they are the same
// for all.
inline std::vector<Chances> ChancesOf(Random& random, const Case& which) {
  if (which.columns == 0) return {{which.density, 0.5}};
  constexpr double kMinus[] = {0, 0.02, 0.2, 0.5, 1};
  std::vector<Chances> chances(which.columns * kBlockSize);
  for (Chances& of_column : chances) {
    const double often = Below(random, 3) == 0 ? 1 : 0.1;
    of_column = {which.density * often, kMinus[Below(random, 5)]};
  }
  return chances;
}

// A message whose low levels are the most frequent ones, and whose scales are
// alike. Every fifth block or so is empty.
inline Bytes MessageOf(Random& random, const Case& which) {
  const Codec codec = which.format.codec;
  const MessageLayout layout = which.Layout();
  Bytes message = Frames(which.format, which.blocks, 1);
  const std::vector<Chances> chances = ChancesOf(random, which);
  std::uniform_real_distribution<double> below_one;
  const int sign = 1 << MagnitudeBits(codec);
  for (int64_t block = 0; block < which.blocks; ++block) {
    if (Below(random, 5) == 0) continue;
    uint8_t* const codes = layout.Codes(message.data(), block);
    for (int64_t i = 0; i < kBlockSize; ++i) {
      const size_t column = static_cast<size_t>(block * kBlockSize + i);
      const Chances& of_column = chances[column % chances.size()];
      if (below_one(random) >= of_column.nonzero) continue;
      const bool minus = below_one(random) < of_column.minus;
      const int magnitude =
          static_cast<int>(1 + Below(random, Below(random, sign - 1) + 1));
      SetCode(codec, i,
              InPlanes(CodeBits(codec)) ? magnitude + (minus ? sign : 0)
                                        : (minus ? kCodeMinus : kCodePlus),
              codes);
    }
    if (!HasScales(codec)) continue;
    *layout.Scales(message.data(), block) =
        static_cast<uint16_t>(0x3c00 + Below(random, 0x200));
  }
  return message;
}

inline void RunTasksInTurn(int64_t tasks,
                           const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < tasks; ++i) task(i);
}

[[noreturn]] inline void Fail(const Case& which, const char* what) {
  std::fprintf(stderr, "%s\n", which.Name(what).c_str());
  std::exit(1);
}

inline Bytes PackOnCpu(const Case& which, const Bytes& message) {
  const MessageLayout layout = which.Layout();
  const Codec codec = which.format.codec;
  Bytes compact(PackCapacity(codec, layout));
  compact.resize(Pack(codec, layout, which.periods, message.data(),
                      compact.data(), RunTasksInTurn));
  return compact;
}

inline bool UnpackOnCpu(const Case& which, const Bytes& compact,
                        Bytes* message) {
  const MessageLayout layout = which.Layout();
  message->assign(layout.size, 0);
  // The CPU, too, wants an alignment that an empty vector may not have.
  alignas(16) static uint8_t nothing[16];
  return Unpack(
      which.format.codec, layout, compact.empty() ? nothing : compact.data(),
      static_cast<int64_t>(compact.size()), message->data(), RunTasksInTurn);
}

inline Bytes UnpackOnGpu(const Case& which, const Bytes& compact) {
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
inline Bytes ExpectPacked(const Case& which, const Bytes& message,
                          const std::string& what) {
  const std::string name = which.Name(what);
  const Codec codec = which.format.codec;
  const Bytes expected = PackOnCpu(which, message);
  const TightBytes input(message);
  const Array<uint8_t> output(message.size());
  const Array<int64_t> bytes(1);
  const Array<uint8_t> space(PackSpace(codec, which.blocks));
  Check(Pack(codec, which.blocks, which.periods, input.data(), output.data(),
             bytes.data(), space.data(), nullptr),
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

inline bool IsCompact(const Bytes& message) {
  return reinterpret_cast<const MessageHeader*>(message.data())->magic ==
         kCompactMagic;
}

// That of the first segment of a packed message.
inline const SegmentHeader& SegmentHeaderOf(const Bytes& compact) {
  return *reinterpret_cast<const SegmentHeader*>(&compact[kSegmentsOffset]);
}

// The only kind of a plane's runs in that segment.
inline int OnlyKindOf(const Case& which, const Bytes& compact, int plane) {
  const SegmentLayout layout =
      LayoutOf(which.format.codec, BlocksInSegment(which.blocks, 0),
               SegmentHeaderOf(compact));
  return OnlyKind(&compact[SegmentsStart(which.blocks) + layout.counts_offset +
                           plane * kKinds]);
}

// What decoding gives after a message was unpacked whose bytes are broken.
inline void ExpectNotFinite(const Case& which, const Bytes& message) {
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
inline bool ExpectAsOnCpu(const Case& which, const Bytes& compact,
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

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_TESTS_GPU_COMPACT_CASES_H_
