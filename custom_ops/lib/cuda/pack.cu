// Pack on a GPU: counts the high bytes of scales, makes frequencies of the
// counts, packs each segment into memory of its own, says where the segments
// go, and brings them there.

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/compact.h"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/pack_segment.cuh"
#include "custom_ops/lib/cuda/runs.cuh"
#include "custom_ops/lib/cuda/symbols.cuh"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {
namespace {

constexpr int kPerMultiprocessor = 3;  // thread blocks

struct PackParams {
  MessageLayout layout;
  Periods periods;
  const uint8_t* message;
  uint8_t* compact;
  int64_t* bytes;
  int segments;
  // In `space`.
  Symbols* symbols;
  SegmentHeader* headers;
  int64_t* starts;  // of the segments in the packed message
  void* packed;     // a PackedSegment for each segment

  __device__ int Blocks(int segment) const {
    return static_cast<int>(BlocksInSegment(layout.blocks, segment));
  }
  template <Codec kCodec>
  __device__ PackedSegment<kCodec>* Packed(int segment) const {
    return static_cast<PackedSegment<kCodec>*>(packed) + segment;
  }
};

// Fills what does not point at the caller's memory. Returns the bytes of
// `space`.
template <Codec kCodec>
int64_t Arrange(int64_t blocks, uint8_t* space, PackParams* params) {
  const int64_t segments = NumSegments(blocks);
  Cutter cutter(space);
  params->layout = LayoutOf(kCodec, blocks);
  params->segments = static_cast<int>(segments);
  params->symbols = cutter.Take<Symbols>(1);
  params->headers = cutter.Take<SegmentHeader>(segments);
  params->starts = cutter.Take<int64_t>(segments);
  params->packed = cutter.Take<PackedSegment<kCodec>>(segments);
  return cutter.size();
}

// ---- Frequencies ------------------------------------------------------------

// Only if there are scales.
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor)
    CountScalesKernel(const __grid_constant__ PackParams params) {
  CountScales(params.layout.Scales(params.message, 0), params.layout.blocks,
              params.symbols);
}

__global__ void __launch_bounds__(kThreads)
    FillTablesKernel(const __grid_constant__ PackParams params) {
  FillTables(params.symbols);
}

// ---- Segments ---------------------------------------------------------------

// Packs a segment. The first warp gets its header, which is all zeros if the
// segment is not coded.
template <Codec kCodec>
__device__ SegmentHeader PackSegment(const PackParams& params, int segment,
                                     PackShared<kCodec>* shared) {
  const int64_t first = segment * kSegmentBlocks;
  const int blocks = params.Blocks(segment);
  const uint8_t* const codes = params.layout.Codes(params.message, first);
  PackedSegment<kCodec>* const packed = params.Packed<kCodec>(segment);
  SegmentHeader header = {};
  const uint16_t* const scales = params.layout.Scales(params.message, first);
  const bool split =
      SplitScales(scales, blocks, shared, packed->scales, &header);
  const bool symbols = HasSymbols<kCodec>(codes, blocks, shared->filled);
  if (__syncthreads_or(!split || !symbols)) return {};
  const int period = ChoosePeriod(params.periods, codes, blocks, shared);
  const bool paired = IsPaired(blocks, period);
  header.period = static_cast<uint16_t>(period);
  header.paired = paired ? 1 : 0;
  const Runs runs =
      RunsOf(period, paired, blocks, static_cast<int>(header.filled),
             HasScales(kCodec) ? scales : nullptr, shared);
  const Way way = ChooseWay<kCodec>(params.periods, runs, codes);
  ChooseKinds(way, runs, codes, shared, packed);
  const int flag_words = way == Way::kGroupedMap ? FlagWords(runs.count) : 0;
  header.mixed = PlaceStreams(flag_words, shared, packed);
  PutRuns(way, runs, codes, shared, packed);
  __syncthreads();
  if (threadIdx.x >= kWarp) return {};
  header.words = CodeSegment(*shared, LayoutOf(kCodec, blocks, header), packed);
  const bool smaller =
      header.words != 0 &&
      LayoutOf(kCodec, blocks, header).size < PlainBytes(kCodec, blocks);
  return smaller ? header : SegmentHeader{};
}

template <Codec kCodec>
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor)
    PackKernel(const __grid_constant__ PackParams params) {
  __shared__ PackShared<kCodec> shared;
  CopyWords(reinterpret_cast<const uint8_t*>(&params.symbols->entries),
            sizeof(Entries), reinterpret_cast<uint8_t*>(&shared.entries));
  for (int segment = blockIdx.x; segment < params.segments;
       segment += gridDim.x) {
    const SegmentHeader header = PackSegment(params, segment, &shared);
    if (threadIdx.x == 0) params.headers[segment] = header;
    __syncthreads();  // Then the next segment may overwrite what is shared.
  }
}

// ---- The message ------------------------------------------------------------

// Says where each segment goes and how long the message is, and writes what is
// around the segments. One thread block.
template <Codec kCodec>
__global__ void __launch_bounds__(kThreads)
    PlaceKernel(const __grid_constant__ PackParams params) {
  int64_t end = SegmentsStart(params.layout.blocks);
  for (int first = 0; first < params.segments; first += kThreads) {
    const int segment = first + threadIdx.x;
    const int64_t size = segment < params.segments
                             ? SegmentBytes(kCodec, params.Blocks(segment),
                                            params.headers[segment])
                             : 0;
    const Sums<int64_t> sums = SumOfBlock(size);
    if (segment < params.segments) params.starts[segment] = end + sums.before;
    end += sums.all;
  }
  const int64_t bytes = CompactBytes(end);
  const bool smaller = bytes < params.layout.size;
  if (threadIdx.x == 0) *params.bytes = smaller ? bytes : params.layout.size;
  if (!smaller) return;
  uint8_t* const compact = params.compact;
  if (threadIdx.x == 0) {
    MessageHeader header =
        *reinterpret_cast<const MessageHeader*>(params.message);
    header.magic = kCompactMagic;
    *reinterpret_cast<MessageHeader*>(compact) = header;
    for (int64_t i = end; i < bytes; i += 8) StoreWord(0, compact + i);
  }
  CopyWords(reinterpret_cast<const uint8_t*>(params.symbols->frequencies),
            2 * kScaleSymbols, compact + kScaleTableOffset);
}

// Copies a segment that is not coded. What is after its last scale becomes 0.
template <Codec kCodec>
__device__ void CopyPlain(const uint8_t* codes, const uint16_t* scales,
                          int blocks, uint8_t* to) {
  const int64_t code_bytes = blocks * CodeBytes(kCodec);
  CopyWords(codes, code_bytes, to);
  if (!HasScales(kCodec)) return;
  uint16_t* const to_scales = reinterpret_cast<uint16_t*>(to + code_bytes);
  for (int i = threadIdx.x; i < RoundUp(blocks, 4); i += kThreads) {
    to_scales[i] = i < blocks ? scales[i] : 0;
  }
}

// Brings the segments and their headers to the packed message, or copies the
// message.
template <Codec kCodec>
__global__ void __launch_bounds__(kThreads)
    GatherKernel(const __grid_constant__ PackParams params) {
  if (*params.bytes == params.layout.size) {
    CopyMessage(params.message, params.layout.size, params.compact);
    return;
  }
  for (int segment = blockIdx.x; segment < params.segments;
       segment += gridDim.x) {
    const SegmentHeader header = params.headers[segment];
    if (threadIdx.x == 0) {
      reinterpret_cast<SegmentHeader*>(params.compact +
                                       kSegmentsOffset)[segment] = header;
    }
    const int blocks = params.Blocks(segment);
    uint8_t* const to = params.compact + params.starts[segment];
    if (header.words == 0) {
      const int64_t first = segment * kSegmentBlocks;
      CopyPlain<kCodec>(params.layout.Codes(params.message, first),
                        params.layout.Scales(params.message, first), blocks,
                        to);
      continue;
    }
    const SegmentLayout layout = LayoutOf(kCodec, blocks, header);
    const PackedSegment<kCodec>& packed = *params.Packed<kCodec>(segment);
    CopyWords(reinterpret_cast<const uint8_t*>(packed.words),
              layout.scales_offset, to);
    CopyWords(packed.scales, layout.counts_offset - layout.scales_offset,
              to + layout.scales_offset);
    CopyWords(packed.counts[0], layout.mixed_offset - layout.counts_offset,
              to + layout.counts_offset);
    CopyWords(reinterpret_cast<const uint8_t*>(packed.streams),
              layout.size - layout.mixed_offset, to + layout.mixed_offset);
  }
}

template <Codec kCodec>
int LaunchPack(const PackParams& params, cudaStream_t stream) {
  const int64_t sampled = params.layout.blocks / kSampledBlocks;
  const auto launch = [&](void (*kernel)(PackParams), int64_t count,
                          int at_once) {
    return Launch(kernel, params, count, at_once, kPerMultiprocessor, stream);
  };
  int error = cudaMemsetAsync(params.symbols, 0, sizeof(Symbols), stream);
  if (error != cudaSuccess) return error;
  if (HasScales(kCodec)) {
    error = launch(CountScalesKernel, sampled, kThreads);
    if (error != cudaSuccess) return error;
  }
  error = launch(FillTablesKernel, 1, 1);
  if (error != cudaSuccess) return error;
  error = launch(PackKernel<kCodec>, params.segments, 1);
  if (error != cudaSuccess) return error;
  error = launch(PlaceKernel<kCodec>, 1, 1);
  if (error != cudaSuccess) return error;
  return launch(GatherKernel<kCodec>, params.segments, 1);
}

}  // namespace

int64_t PackSpace(Codec codec, int64_t blocks) {
  int64_t size = 0;
  const int error = ForCompactible(codec, [&](auto known) -> int {
    PackParams params;
    size = Arrange<known()>(blocks, nullptr, &params);
    return cudaSuccess;
  });
  if (error != cudaSuccess) Trap();
  return size;
}

int Pack(Codec codec, int64_t blocks, const Periods& periods,
         const uint8_t* message, uint8_t* compact, int64_t* bytes,
         uint8_t* space, CUstream_st* stream) {
  if (blocks < 0 || blocks >= kEndOfBlocks ||
      !ArePeriods(periods.values, periods.count)) {
    return cudaErrorInvalidValue;
  }
  if (!IsAligned(message) || !IsAligned(compact) || !IsAligned(space) ||
      reinterpret_cast<uintptr_t>(bytes) % sizeof(int64_t) != 0) {
    return cudaErrorMisalignedAddress;
  }
  return ForCompactible(codec, [&](auto known) -> int {
    PackParams params;
    Arrange<known()>(blocks, space, &params);
    params.periods = periods;
    params.message = message;
    params.compact = compact;
    params.bytes = bytes;
    return LaunchPack<known()>(params, stream);
  });
}

}  // namespace gpu
}  // namespace tf_gc
