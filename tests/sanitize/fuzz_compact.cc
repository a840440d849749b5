// Fuzz target of compact.h: messages that come back as they were, and bytes
// that are no message.

#include <functional>
#include <type_traits>

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "custom_ops/lib/wire/wire.h"
#include "tests/sanitize/fuzz.h"

namespace tf_gc {
namespace {

using Task = std::function<void(int64_t)>;

constexpr Codec kCodecs[] = {Codec::kTwoBitFixed, Codec::kTwoBitAuto,
                             Codec::kThreeBit, Codec::kFourBit};

void Forwards(int64_t tasks, const Task& task) {
  for (int64_t i = 0; i < tasks; ++i) task(i);
}

void Backwards(int64_t tasks, const Task& task) {
  for (int64_t i = tasks - 1; i >= 0; --i) task(i);
}

int64_t BlocksOf(Input* input) {
  const int64_t kind = input->Below(8);
  if (kind == 0) return input->Below(18);
  if (kind == 1) return kSegmentBlocks - 2 + input->Below(5);
  if (kind == 2) return kSegmentBlocks + input->Below(2 * kSegmentBlocks);
  if (kind < 6) return kRun + input->Below(4 * kRun);
  return 16 + input->Below(50);
}

// Which of 64 codes are not zero: none, all, half of them, a quarter and so on.
uint64_t NonzerosOf(Input* input, int64_t kind) {
  uint64_t bits = input->Value<uint64_t>();
  if (kind == 0) return 0;
  if (kind == 1) return ~uint64_t{0};
  for (int64_t i = 2; i < kind; ++i) bits &= input->Value<uint64_t>();
  return bits;
}

// Sets a bit to the lowest bit of `value`.
void Set(uint8_t* codes, int64_t bit, uint64_t value) {
  uint8_t& byte = codes[bit / 8];
  byte = static_cast<uint8_t>(byte | (value & 1) << bit % 8);
}

// Codes of a block, half a block after the other, each as dense as its kind.
// The signs are random, or are all as `sign_kind` says.
void FillCodes(Codec codec, int64_t sign_kind, Input* input, uint8_t* codes) {
  const int planes = MagnitudeBits(codec);
  for (int half = 0; half < 2; ++half) {
    const uint64_t nonzero = NonzerosOf(input, input->Below(8));
    const uint64_t sign = nonzero & NonzerosOf(input, sign_kind);
    const uint64_t common[2] = {NonzerosOf(input, input->Below(4)),
                                NonzerosOf(input, input->Below(4))};
    const uint64_t rare = input->Value<uint64_t>();
    for (int i = 0; i < 64; ++i) {
      const int64_t bit = half * 64 + i;
      if (planes == 1) {
        Set(codes, 2 * bit + 1, nonzero >> i);
        Set(codes, 2 * bit, sign >> i);
        continue;
      }
      uint64_t any = 0;
      for (int plane = 1; plane < planes; ++plane) {
        const uint64_t one = (nonzero & common[plane - 1]) >> i & 1;
        Set(codes, RareFirst(planes, plane) * kBlockSize + bit, one);
        any |= one;
      }
      Set(codes, RareBit(planes) * kBlockSize + bit,
          nonzero >> i & (any == 0 ? 1 : rare >> i));
      Set(codes, planes * kBlockSize + bit, sign >> i);
    }
  }
}

// `row_blocks` is often one of them if it is not 0.
Periods PeriodsOf(int64_t row_blocks, Input* input) {
  Periods periods = {static_cast<int>(input->Below(kMostPeriods + 1)), {}};
  for (int i = 0; i < periods.count; ++i) {
    const int64_t any = 1 + input->Below(input->Coin() ? 20 : kSegmentBlocks);
    periods.values[i] = static_cast<int32_t>(
        row_blocks > 0 && input->Coin() ? row_blocks : any);
  }
  return periods;
}

// Most blocks are like the one `row_blocks` before if that is not 0.
Array<uint8_t> MessageOf(Codec codec, const MessageLayout& layout,
                         int64_t row_blocks, Input* input) {
  Array<uint8_t> message(layout.size);
  const MessageHeader header =
      HeaderOf(codec, layout.blocks, input->Value<float>());
  memset(message.data(), 0, message.size());
  memcpy(message.data(), &header, sizeof header);
  const int64_t sign_kind = input->Below(4);
  const int64_t used = input->Coin() ? layout.blocks  // the others are zeros
                                     : input->Below(layout.blocks + 1);
  for (int64_t i = 0; i < used; ++i) {
    uint8_t* const codes = layout.Codes(message.data(), i);
    if (row_blocks > 0 && i >= row_blocks && input->Below(16) > 0) {
      memcpy(codes, layout.Codes(message.data(), i - row_blocks),
             static_cast<size_t>(layout.code_bytes));
    } else {
      FillCodes(codec, sign_kind, input, codes);
    }
  }
  if (HasScales(codec)) {
    const uint16_t mask = input->Coin() ? 0x01ff : 0x7fff;
    // If not any scales, 0 where all codes are 0, and a high byte elsewhere.
    const bool any = input->Below(8) == 0;
    for (int64_t i = 0; i < layout.blocks; ++i) {
      uint16_t& scale = *layout.Scales(message.data(), i);
      scale = input->Value<uint16_t>() & mask;
      if (any) continue;
      const uint8_t* const codes = layout.Codes(message.data(), i);
      const bool empty = std::all_of(codes, codes + layout.code_bytes,
                                     [](uint8_t byte) { return byte == 0; });
      scale = empty ? 0 : scale | 0x0100;
    }
  }
  // At times any bytes: codes that say "not finite", scales below zero.
  for (int64_t i = input->Below(4) == 0 ? input->Below(9) : 0; i > 0; --i) {
    const int64_t end = layout.padding_offset - layout.codes_offset;
    if (end > 0) {
      message[layout.codes_offset + input->Below(end)] =
          input->Value<uint8_t>();
    }
  }
  return message;
}

Bytes Packed(Codec codec, const MessageLayout& layout, const Periods& periods,
             const Array<uint8_t>& message, const RunTasks& run) {
  const Array<uint8_t> compact(PackCapacity(codec, layout));
  const int64_t size =
      Pack(codec, layout, periods, message.data(), compact.data(), run);
  CHECK(0 < size && size <= layout.size && size % kMessageAlignment == 0);
  return Bytes(compact.data(), compact.data() + size);
}

// The message, or nothing if there is none.
Bytes Unpacked(Codec codec, const MessageLayout& layout, const Bytes& bytes,
               const RunTasks& run) {
  const Array<uint8_t> compact(static_cast<int64_t>(bytes.size()));
  if (!bytes.empty()) memcpy(compact.data(), bytes.data(), bytes.size());
  const Array<uint8_t> message(layout.size);
  const bool whole = Unpack(codec, layout, compact.data(), compact.size(),
                            message.data(), run);
  return whole ? message.Bits() : Bytes();
}

SegmentHeader* HeadersOf(Bytes* compact) {
  return reinterpret_cast<SegmentHeader*>(compact->data() + kSegmentsOffset);
}

void ChangeField(int64_t segments, Input* input, Bytes* compact) {
  SegmentHeader& header = HeadersOf(compact)[input->Below(segments)];
  const auto change = [&](auto* field) {
    using Field = std::remove_pointer_t<decltype(field)>;
    *field = static_cast<Field>(input->Coin() ? *field + input->Below(9) - 4
                                              : input->Hostile());
  };
  switch (input->Below(5)) {
    case 0:
      return change(&header.words);
    case 1:
      return change(&header.mixed);
    case 2:
      return change(&header.filled);
    case 3:
      return change(&header.period);
    default:
      header.paired = static_cast<uint16_t>(header.paired ^ 1);
  }
}

// Puts other frequencies into the table, with the right sum at times.
void ChangeTable(Input* input, Bytes* compact) {
  uint16_t* const table =
      reinterpret_cast<uint16_t*>(compact->data() + kScaleTableOffset);
  const uint16_t moved = input->Value<uint16_t>() % kFrequencySum;
  table[input->Below(kScaleSymbols)] += moved;
  if (input->Coin()) table[input->Below(kScaleSymbols)] -= moved;
}

// Changes the counts of a plane's kinds in the first segment, often to counts
// of one kind or of none, or the last ones of its mixed bits. Often no more is
// wrong with these than that bits follow the last one.
void ChangeSegment(Codec codec, const MessageLayout& layout, Input* input,
                   Bytes* compact) {
  const SegmentHeader& header = *HeadersOf(compact);
  if (header.words == 0) return;
  const SegmentLayout parts =
      LayoutOf(codec, BlocksInSegment(layout.blocks, 0), header);
  uint8_t* const segment = compact->data() + SegmentsStart(layout.blocks);
  if (header.mixed == 0 || input->Coin()) {
    uint8_t* const counts =
        segment + parts.counts_offset + input->Below(NumPlanes(codec)) * kKinds;
    if (input->Coin()) std::fill_n(counts, kKinds, uint8_t{0});
    counts[input->Below(kKinds)] = input->Value<uint8_t>();
    return;
  }
  const int64_t changed = 1 + input->Below(std::min<int64_t>(header.mixed, 4));
  for (int64_t i = 8 * changed; i > 0; --i) {
    if (input->Coin()) segment[parts.size - i] ^= 1 << input->Below(8);
  }
}

void Change(Codec codec, const MessageLayout& layout, Input* input,
            Bytes* compact) {
  MessageHeader header;
  memcpy(&header, compact->data(), sizeof header);
  const bool packed = header.magic == kCompactMagic;
  const int64_t kind = input->Below(packed ? 8 : 3);
  const int64_t size = static_cast<int64_t>(compact->size());
  if (kind == 0) {  // Bits anywhere.
    for (int64_t i = input->Below(5); i >= 0; --i) {
      (*compact)[input->Below(size)] ^= 1 << input->Below(8);
    }
  } else if (kind == 1) {  // Another length.
    compact->resize(input->Below(size + 99));
  } else if (kind == 2) {  // Any bytes from here on.
    const int64_t from = input->Below(size);
    input->Fill(compact->data() + from, static_cast<size_t>(size - from));
  } else if (kind == 3) {
    ChangeTable(input, compact);
  } else if (kind < 6) {
    ChangeSegment(codec, layout, input, compact);
  } else {
    ChangeField(NumSegments(layout.blocks), input, compact);
  }
}

}  // namespace

void FuzzCompact(Input* input) {
  const Codec codec = input->OneOf(kCodecs);
  const int64_t blocks = BlocksOf(input);
  const RunTasks run = input->Coin() ? Forwards : Backwards;
  const MessageLayout layout = LayoutOf(codec, blocks);
  const int64_t row_blocks = input->Below(input->Coin() ? 4 : 20);
  const Array<uint8_t> message = MessageOf(codec, layout, row_blocks, input);
  const Periods periods = PeriodsOf(row_blocks, input);
  Bytes compact;
  SameForAllTargets([&] {
    compact = Packed(codec, layout, periods, message, run);
    CHECK(Unpacked(codec, layout, compact, run) == message.Bits());
    return compact;
  });
  for (int64_t i = input->Below(4); i >= 0; --i) {
    Bytes changed = compact;
    Change(codec, layout, input, &changed);
    SameForAllTargets([&] { return Unpacked(codec, layout, changed, run); });
  }
  // A header with any bytes behind it, or with a table and then any bytes.
  MessageHeader header = HeaderOf(codec, layout.blocks, 0);
  header.magic = kCompactMagic;
  Bytes bytes(static_cast<size_t>(1 + input->Below(4000)));
  input->Fill(bytes.data(), bytes.size());
  memcpy(bytes.data(), &header, std::min(bytes.size(), sizeof header));
  if (bytes.size() >= static_cast<size_t>(kSegmentsOffset) && input->Coin()) {
    uint16_t table[kScaleSymbols];
    std::fill_n(table, kScaleSymbols, kFrequencySum / kScaleSymbols);
    memcpy(bytes.data() + kScaleTableOffset, table, sizeof table);
  }
  SameForAllTargets([&] { return Unpacked(codec, layout, bytes, run); });
}

}  // namespace tf_gc
