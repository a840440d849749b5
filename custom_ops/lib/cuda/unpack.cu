// Unpack on a GPU: one thread block looks at the header, the frequencies and
// the lengths of the segments, then each segment is unpacked.

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/compact.h"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/messages.cuh"
#include "custom_ops/lib/cuda/runs.cuh"
#include "custom_ops/lib/cuda/tables.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/cuda/unpack_segment.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {
namespace {

constexpr int kPerMultiprocessor = 2;  // thread blocks

// What there is to do with a message.
enum class Kind : int { kBroken, kCopied, kPacked };

struct UnpackParams {
  MessageLayout layout;
  const uint8_t* compact;
  int64_t size;  // of `compact`
  uint8_t* message;
  int segments;
  // In `space`.
  Kind* kind;
  DecodingTables* tables;
  int64_t* starts;  // of the segments in `compact`
  void* planes;     // RunPlanes for each segment

  __device__ int Blocks(int segment) const {
    return static_cast<int>(BlocksInSegment(layout.blocks, segment));
  }
  __device__ const SegmentHeader* Headers() const {
    return reinterpret_cast<const SegmentHeader*>(compact + kSegmentsOffset);
  }
  template <Codec kCodec>
  __device__ RunPlanes<kCodec>* Planes(int segment) const {
    return static_cast<RunPlanes<kCodec>*>(planes) + segment;
  }
};

// Fills what does not point at the caller's memory. Returns the bytes of
// `space`.
template <Codec kCodec>
int64_t Arrange(int64_t blocks, uint8_t* space, UnpackParams* params) {
  const int64_t segments = NumSegments(blocks);
  Cutter cutter(space);
  params->layout = LayoutOf(kCodec, blocks);
  params->segments = static_cast<int>(segments);
  params->kind = cutter.Take<Kind>(1);
  params->tables = cutter.Take<DecodingTables>(1);
  params->starts = cutter.Take<int64_t>(segments);
  params->planes = cutter.Take<RunPlanes<kCodec>>(segments);
  return cutter.size();
}

// ---- What is around the segments --------------------------------------------

// DecodingTable, by a thread block. Returns AreFrequencies(). `frequency_of` is
// called with each symbol.
template <int kCount, typename FrequencyOf>
__device__ bool MakeDecodingTable(FrequencyOf frequency_of,
                                  DecodingEntries* entries) {
  __shared__ int starts[kCount + 1];
  const int thread = threadIdx.x;
  const int frequency =
      thread < kCount ? static_cast<int>(frequency_of(thread)) : 0;
  const Sums<int> sums = SumOfBlock(frequency);
  const bool zero = __syncthreads_or(thread < kCount && frequency == 0);
  if (zero || sums.all != static_cast<int>(kFrequencySum)) return false;
  if (thread < kCount) starts[thread] = sums.before;
  if (thread == 0) starts[kCount] = kFrequencySum;
  __syncthreads();
  for (int i = thread; i < static_cast<int>(kFrequencySum); i += kThreads) {
    const int symbol = FindStart(starts, kCount, i);
    entries->of[i] = DecodingEntry(symbol, starts[symbol + 1] - starts[symbol],
                                   i - starts[symbol]);
  }
  return true;
}

__device__ void MakeByteTable(uint32_t chance, DecodingEntries* entries) {
  const ByteFrequencies frequencies(chance);
  MakeDecodingTable<kByteSymbols>(
      [&](int byte) { return frequencies.Of(byte); }, entries);
}

// Fills the arrays in `space` as the message says. All threads of a block get
// the same answer.
template <Codec kCodec>
__device__ Kind Inspect(const UnpackParams& params) {
  const int64_t message_size = params.layout.size;
  if (params.size < static_cast<int64_t>(sizeof(MessageHeader))) {
    return Kind::kBroken;
  }
  const MessageHeader header =
      *reinterpret_cast<const MessageHeader*>(params.compact);
  if (header.magic == kWireMagic) {
    return params.size < message_size ? Kind::kBroken : Kind::kCopied;
  }
  // A packed message is smaller. One without any segment is not.
  const int64_t smaller = message_size - kMessageAlignment;
  const int64_t most = params.size < smaller ? params.size : smaller;
  int64_t end = SegmentsStart(params.layout.blocks);
  if (header.magic != kCompactMagic || header.blocks != params.layout.blocks ||
      header.codec != static_cast<uint8_t>(kCodec) ||
      CompactBytes(end) > most) {
    return Kind::kBroken;
  }
  const uint16_t* const table =
      reinterpret_cast<const uint16_t*>(params.compact + kScaleTableOffset);
  if (!MakeDecodingTable<kScaleSymbols>([=](int high) { return table[high]; },
                                        &params.tables->scales)) {
    return Kind::kBroken;
  }
  MakeByteTable(kFewChance, &params.tables->few);
  MakeByteTable(kSomeChance, &params.tables->some);
  bool fits = true;
  for (int first = 0; first < params.segments; first += kThreads) {
    const int segment = first + threadIdx.x;
    const bool inside = segment < params.segments;
    const SegmentHeader of_segment =
        inside ? params.Headers()[segment] : SegmentHeader{};
    const int blocks = inside ? params.Blocks(segment) : 0;
    fits = fits && (!inside || FitsBlocks(kCodec, blocks, of_segment));
    const int64_t bytes = inside ? SegmentBytes(kCodec, blocks, of_segment) : 0;
    const Sums<int64_t> sums = SumOfBlock(bytes);
    if (inside) params.starts[segment] = end + sums.before;
    end += sums.all;
  }
  if (__syncthreads_or(!fits) || CompactBytes(end) > most) {
    return Kind::kBroken;
  }
  return Kind::kPacked;
}

// One thread block.
template <Codec kCodec>
__global__ void __launch_bounds__(kThreads)
    InspectKernel(const __grid_constant__ UnpackParams params) {
  const Kind kind = Inspect<kCodec>(params);
  if (threadIdx.x != 0) return;
  *params.kind = kind;
  MessageHeader header = {};
  if (kind == Kind::kPacked) {
    header = *reinterpret_cast<const MessageHeader*>(params.compact);
    header.magic = kWireMagic;
  }
  WriteFrame(params.layout, header, params.message);
}

// ---- Segments ---------------------------------------------------------------

// Unpacks a segment of the size that its header says. Returns whether it is
// whole, the same to all threads of a block.
template <Codec kCodec>
__device__ bool UnpackSegment(const UnpackParams& params, int segment,
                              UnpackShared<kCodec>* shared) {
  const int64_t first = segment * kSegmentBlocks;
  const int blocks = params.Blocks(segment);
  uint8_t* const codes = params.layout.Codes(params.message, first);
  uint16_t* const scales = params.layout.Scales(params.message, first);
  const SegmentHeader header = params.Headers()[segment];
  const uint8_t* const from = params.compact + params.starts[segment];
  if (header.words == 0) {
    const int64_t code_bytes = blocks * CodeBytes(kCodec);
    CopyWords(from, code_bytes, codes);
    if (HasScales(kCodec)) {
      const uint16_t* const from_scales =
          reinterpret_cast<const uint16_t*>(from + code_bytes);
      for (int i = threadIdx.x; i < blocks; i += kThreads) {
        scales[i] = from_scales[i];
      }
    }
    return true;
  }
  const SegmentLayout layout = LayoutOf(kCodec, blocks, header);
  RunPlanes<kCodec>* const planes = params.Planes<kCodec>(segment);
  Decoder decoder(reinterpret_cast<const uint16_t*>(from), header.words);
  if (!DecodeScales(params.tables->scales, header, blocks, layout, &decoder,
                    shared)) {
    return false;
  }
  // Even if the segment turns out to be broken: the message is then, too.
  if (HasScales(kCodec)) {
    JoinScales(shared->filled, blocks, from + layout.scales_offset, scales);
  }
  const Runs runs = RunsOf(header.period, header.paired != 0, blocks,
                           static_cast<int>(header.filled),
                           HasScales(kCodec) ? scales : nullptr, shared);
  if (!DecodePlanes(*params.tables, from, header, layout, runs, &decoder,
                    shared, planes)) {
    return false;
  }
  Join(*planes, runs, blocks, shared, codes);
  return true;
}

template <Codec kCodec>
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor)
    UnpackKernel(const __grid_constant__ UnpackParams params) {
  __shared__ UnpackShared<kCodec> shared;
  const Kind kind = *params.kind;
  if (kind == Kind::kBroken) return;
  if (kind == Kind::kCopied) {
    CopyMessage(params.compact, params.layout.size, params.message);
    return;
  }
  for (int segment = blockIdx.x; segment < params.segments;
       segment += gridDim.x) {
    if (!UnpackSegment(params, segment, &shared) && threadIdx.x == 0) {
      *reinterpret_cast<MessageHeader*>(params.message) = {};
    }
    __syncthreads();  // Then the next segment may overwrite what is shared.
  }
}

}  // namespace

int64_t UnpackSpace(Codec codec, int64_t blocks) {
  int64_t size = 0;
  const int error = ForCompactible(codec, [&](auto known) -> int {
    UnpackParams params;
    size = Arrange<known()>(blocks, nullptr, &params);
    return cudaSuccess;
  });
  if (error != cudaSuccess) Trap();
  return size;
}

int Unpack(Codec codec, int64_t blocks, const uint8_t* compact, int64_t size,
           uint8_t* message, uint8_t* space, CUstream_st* stream) {
  if (blocks < 0 || blocks >= kEndOfBlocks || size < 0) {
    return cudaErrorInvalidValue;
  }
  if (!IsAligned(compact) || !IsAligned(message) || !IsAligned(space)) {
    return cudaErrorMisalignedAddress;
  }
  return ForCompactible(codec, [&](auto known) -> int {
    UnpackParams params;
    Arrange<known()>(blocks, space, &params);
    params.compact = compact;
    params.size = size;
    params.message = message;
    const int error =
        Launch<UnpackParams>(InspectKernel<known()>, params, 1, 1, 1, stream);
    if (error != cudaSuccess) return error;
    return Launch<UnpackParams>(UnpackKernel<known()>, params, params.segments,
                                1, kPerMultiprocessor, stream);
  });
}

}  // namespace gpu
}  // namespace tf_gc
