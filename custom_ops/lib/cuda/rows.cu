// Rows of tables on a GPU.

#include <cstdint>
#include <cub/cub.cuh>
#include <type_traits>

#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/messages.cuh"
#include "custom_ops/lib/cuda/numbers.cuh"
#include "custom_ops/lib/cuda/rows.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {
namespace {

constexpr int kTeams = kThreads / Team::kLanes;  // of a thread block
constexpr int kPerMultiprocessor = 3;            // thread blocks

// In the place of a codec: rows are in float32.
struct Exact {};

struct RowsParams {
  RowLayout layout;
  const int64_t* starts;
  int parts;     // of all rows
  bool aligned;  // whether rows start at multiples of 16 bytes
};

// A part of a row, which a team works on. It has no elements and no sources
// after the last row.
struct Part {
  int row;
  int number;
  int64_t first;  // element
  int size;       // elements
  int64_t start;  // of what is added up
  int64_t end;
};

__device__ inline Part PartOf(const RowsParams& params, int number) {
  if (number >= params.parts) return {};
  const int parts = static_cast<int>(params.layout.parts());
  const int row = number / parts;
  const int part = number - row * parts;
  return {row,
          part,
          part * params.layout.PartSize(0),
          static_cast<int>(params.layout.PartSize(part)),
          params.starts[row],
          params.starts[row + 1]};
}

// Where the codes of a part are, given those of its row.
template <Codec kCodec, typename Byte>
__device__ inline PartCodes<Byte> CodesOf(const RowLayout& layout, Byte* row,
                                          int64_t layer, const Part& part) {
  constexpr int kBits = InPlanes(CodeBits(kCodec)) ? 1 : CodeBits(kCodec);
  return {row + layout.PartOffset(layer, part.number),
          kBits * ((part.size + 7) / 8)};
}

// ---- Encoding ---------------------------------------------------------------

struct EncodeRowsParams : RowsParams {
  RowsToEncode rows;
};

// Encodes a part of a row, and changes its residuals.
template <typename Definition>
__device__ inline void EncodeLayers(const EncodeRowsParams& params,
                                    const Team& team, const Part& part,
                                    float* p) {
  const RowLayout& layout = params.layout;
  const RowsToEncode& to = params.rows;
  const bool sends = part.size > 0;
  float residual[Team::kElements] = {};
  char* kept_at = static_cast<char*>(to.residual);
  if (kept_at != nullptr && sends) {
    const int64_t first = to.indices[part.row] * layout.columns() + part.first;
    kept_at += first * BytesOf(to.residual_dtype);
    LoadResidual(team, params.aligned, to.residual_dtype, kept_at, residual);
  }
  for (int64_t layer = 0; layer < layout.layers(); ++layer) {
    for (int i = 0; i < Team::kElements; ++i) {
      p[i] = team.Inside(i) ? p[i] + residual[i] : 0.0f;
    }
    float kept[Team::kElements];
    uint8_t code[Team::kElements];
    uint16_t scale = 0;
    Definition::Encode(team, p, residual, 0.0f, code, kept, &scale);
    const auto codes = CodesOf<Definition::kCodec>(
        layout, to.codes + part.row * layout.bytes(), layer, part);
    StoreCodes<CodeBits(Definition::kCodec)>(team.lane, code, codes);
    if (sends && team.lane == 0) {
      to.scales[part.row * layout.scales() + layer * layout.parts() +
                part.number] = scale;
    }
    // The next layer encodes what this one left.
    for (int i = 0; i < Team::kElements; ++i) {
      p[i] = 0.0f;
      residual[i] = kept[i];
    }
  }
  if (to.residual != nullptr) {
    StoreResidual(team, params.aligned, to.residual_dtype, residual, kept_at);
  }
}

// `Definition` is the codec's, or Exact.
template <typename Definition, typename T>
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor)
    EncodeRowsKernel(const __grid_constant__ EncodeRowsParams params) {
  const int thread = blockIdx.x * kThreads + threadIdx.x;
  const int lane = threadIdx.x % Team::kLanes;
  // All lanes of a warp go through the loop together.
  for (int i = thread / kWarp * (kWarp / Team::kLanes); i < params.parts;
       i += gridDim.x * kTeams) {
    const Part part = PartOf(params, i + threadIdx.x % kWarp / Team::kLanes);
    const Team team = {lane, part.size};
    const auto* const values =
        static_cast<const T*>(params.rows.values) + part.first;
    float sum[Team::kElements];
    for (float& element : sum) element = StartOfSum(false);
    // In the order of positions, as on the CPU. Several are loaded at once.
#pragma unroll 4
    for (int64_t j = part.start; j < part.end; ++j) {
      float next[Team::kElements];
      LoadElements(team, params.aligned,
                   values + params.rows.positions[j] * params.layout.columns(),
                   next);
      for (int k = 0; k < Team::kElements; ++k) sum[k] += next[k];
    }
    if constexpr (std::is_same_v<Definition, Exact>) {
      auto* const row = reinterpret_cast<float*>(
          params.rows.codes + part.row * params.layout.bytes());
      RoundElements(team, /*aligned=*/false, sum, row + part.first);
    } else {
      EncodeLayers<Definition>(params, team, part, sum);
    }
  }
}

// ---- Decoding ---------------------------------------------------------------

struct DecodeRowsParams : RowsParams {
  const RowSource* sources;
  void* values;
};

// `Decoder` is the codec's, or Exact.
template <typename Decoder, typename T>
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor)
    DecodeRowsKernel(const __grid_constant__ DecodeRowsParams params) {
  const RowLayout& layout = params.layout;
  const int team_of_grid = (blockIdx.x * kThreads + threadIdx.x) / Team::kLanes;
  for (int i = team_of_grid; i < params.parts; i += gridDim.x * kTeams) {
    const Part part = PartOf(params, i);
    const Team team = {static_cast<int>(threadIdx.x % Team::kLanes), part.size};
    float sums[Team::kElements];
    for (float& sum : sums) sum = StartOfSum(false);
    for (int64_t j = part.start; j < part.end; ++j) {
      const RowSource& source = params.sources[j];
      if constexpr (std::is_same_v<Decoder, Exact>) {
        float values[Team::kElements];
        const auto* row = reinterpret_cast<const float*>(source.codes);
        LoadElements(team, /*aligned=*/false, row + part.first, values);
        for (int k = 0; k < Team::kElements; ++k) sums[k] += values[k];
      } else {
        for (int64_t layer = 0; layer < layout.layers(); ++layer) {
          const auto loaded = Decoder::Load(
              team.lane,
              CodesOf<Decoder::kCodec>(layout, source.codes, layer, part),
              source.scales + layer * layout.parts() + part.number);
          AddLoaded<Decoder>(loaded, team.lane, 0.0f, sums);
        }
      }
    }
    RoundElements(team, params.aligned, sums,
                  static_cast<T*>(params.values) + part.row * layout.columns() +
                      part.first);
  }
}

// ---- Launches ---------------------------------------------------------------

// Calls launch(definition, decoder, a T*) for the codec and the dtype.
template <typename Call>
int ForFormat(const RowsFormat& format, DType dtype, const Call& launch) {
  return ForType(dtype, cudaErrorInvalidValue, [&](auto* type) -> int {
    if (format.IsExact()) return launch(Exact(), Exact(), type);
    return ForAutomatic(format.codec, [&](auto definition, auto decoder) {
      return launch(definition, decoder, type);
    });
  });
}

template <typename Params>
int LaunchRows(void (*kernel)(Params), Params params, int64_t count,
               cudaStream_t stream) {
  const int64_t parts = count * params.layout.parts();
  if (parts >= kEndOfBlocks) return cudaErrorInvalidValue;
  if (parts == 0) return cudaSuccess;
  params.parts = static_cast<int>(parts);
  params.aligned &= params.layout.columns() % 8 == 0;
  return Launch(kernel, params, parts, kTeams, kPerMultiprocessor, stream);
}

}  // namespace

int SortIndices(const int64_t* indices, const uint32_t* positions,
                int64_t count, int64_t rows, void* scratch,
                size_t* scratch_bytes, int64_t* sorted_indices,
                uint32_t* sorted_positions, CUstream_st* stream) {
  if (count >= kEndOfBlocks) return cudaErrorInvalidValue;
  int bits = 1;
  while (rows >> bits != 0) ++bits;
  return cub::DeviceRadixSort::SortPairs(
      scratch, *scratch_bytes, indices, sorted_indices, positions,
      sorted_positions, static_cast<int>(count), 0, bits, stream);
}

int EncodeRows(const RowsFormat& format, const RowLayout& layout, DType dtype,
               const RowsToEncode& rows, int64_t count, CUstream_st* stream) {
  const bool aligned = IsAligned(rows.values) && IsAligned(rows.residual);
  const EncodeRowsParams params = {{layout, rows.starts, 0, aligned}, rows};
  return ForFormat(format, dtype, [&](auto definition, auto, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return LaunchRows(EncodeRowsKernel<decltype(definition), T>, params, count,
                      stream);
  });
}

int DecodeRows(const RowsFormat& format, const RowLayout& layout, DType dtype,
               const int64_t* starts, const RowSource* sources, int64_t count,
               void* values, CUstream_st* stream) {
  const DecodeRowsParams params = {
      {layout, starts, 0, IsAligned(values)}, sources, values};
  return ForFormat(format, dtype, [&](auto, auto decoder, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return LaunchRows(DecodeRowsKernel<decltype(decoder), T>, params, count,
                      stream);
  });
}

}  // namespace tf_gc::gpu
