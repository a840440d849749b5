// DecodeSum and DecodeShards on a GPU.

#include <cstdint>
#include <type_traits>

#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/messages.cuh"
#include "custom_ops/lib/cuda/numbers.cuh"
#include "custom_ops/lib/cuda/tables.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {
namespace {

constexpr int kTeams = kThreads / Team::kLanes;  // of a thread block
constexpr int kPerMultiprocessor = 5;            // thread blocks
// The compiler refuses more threads than a multiprocessor of sm_75 holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
constexpr int kAtOnce = 1024 / kThreads;
#else
constexpr int kAtOnce = kPerMultiprocessor;
#endif

struct DecodeParams {
  TensorTable<Sum> tensors;
  RowTable rows;
  float unit;
  // Whether each row has the blocks of one shard, instead of all blocks.
  bool by_shards;
  // The blocks of this launch.
  int first;
  int end;
};

template <typename Decoder, typename T>
__global__ void __launch_bounds__(kThreads, kAtOnce)
    DecodeKernel(const __grid_constant__ DecodeParams params) {
  const RowTable& rows = params.rows;
  const float start_of_sum = StartOfSum(AnyUnexpected(rows));
  const int team_of_grid = (blockIdx.x * kThreads + threadIdx.x) / Team::kLanes;
  TensorCursor<Sum> cursor;
  for (int block = params.first + team_of_grid; block < params.end;
       block += gridDim.x * kTeams) {
    cursor.Seek(params.tensors, block);
    const Team team = {static_cast<int>(threadIdx.x % Team::kLanes),
                       cursor.Size(block)};
    float sums[Team::kElements];
    for (float& sum : sums) sum = start_of_sum;
    if (params.by_shards) {
      const int shard = ShardOf(block, rows.layout.blocks);
      const int in_shard = block - shard * static_cast<int>(rows.layout.blocks);
      const uint8_t* row = rows.Row(shard);
      const auto loaded =
          Decoder::Load(team.lane, row + CodesOffset<Decoder::kCodec>(in_shard),
                        rows.layout.Scales(row, in_shard));
      AddLoaded<Decoder>(loaded, team.lane, params.unit, sums);
    } else {
      AddRows<Decoder>(rows, block, team.lane, params.unit, sums);
    }
    for (float& sum : sums) sum = Decoder::Finish(sum, params.unit);
    RoundElements(team, cursor.aligned, sums,
                  static_cast<T*>(cursor.tensor.sum) + cursor.First(block));
  }
}

template <typename Decoder, typename T>
int LaunchDecode(const Sum* tensors, int64_t count, DecodeParams* params,
                 cudaStream_t stream) {
  return ForTables(tensors, count, &params->tensors,
                   [=](int first, int end, bool) -> int {
                     if (first == end) return cudaSuccess;
                     params->first = first;
                     params->end = end;
                     return Launch<DecodeParams>(DecodeKernel<Decoder, T>,
                                                 *params, end - first, kTeams,
                                                 kPerMultiprocessor, stream);
                   });
}

// Decodes rows of `blocks` blocks.
int Decode(Codec codec, DType dtype, const uint8_t* const* rows, int64_t count,
           int64_t blocks, const Sum* tensors, int64_t tensor_count, float unit,
           bool by_shards, cudaStream_t stream) {
  if (blocks >= kEndOfBlocks) return cudaErrorInvalidValue;
  DecodeParams params;
  const int error = FillRows(codec, blocks, unit, rows, count, &params.rows);
  if (error != cudaSuccess) return error;
  params.unit = unit;
  params.by_shards = by_shards;
  return ForType(dtype, cudaErrorInvalidValue, [&](auto* type) -> int {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto launch = [&](auto decoder) {
      return LaunchDecode<decltype(decoder), T>(tensors, tensor_count, &params,
                                                stream);
    };
    switch (codec) {
      case Codec::kTwoBitFixed:
        return launch(TwoBitDecoder<false>());
      case Codec::kTwoBitAuto:
        return launch(TwoBitDecoder<true>());
      case Codec::kOneBitFixed:
      case Codec::kOneBitAuto:
        return launch(OneBitDecoder());
      case Codec::kThreeBit:
        return launch(ThreeBitDecoder());
      case Codec::kFourBit:
        return launch(FourBitDecoder());
      case Codec::kEightBit:
        return launch(EightBitDecoder());
      case Codec::kCounts4:
        return launch(CountsDecoder<4>());
      case Codec::kCounts8:
        return launch(CountsDecoder<8>());
      case Codec::kCounts16:
        return launch(CountsDecoder<16>());
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace

int DecodeSum(Codec codec, DType dtype, const uint8_t* const* rows,
              int64_t replicas, const Sum* tensors, int64_t count,
              float threshold, CUstream_st* stream) {
  if (!EncodesGradients(codec) || replicas < 1) return cudaErrorInvalidValue;
  return Decode(codec, dtype, rows, replicas, BlocksOf(tensors, count), tensors,
                count, threshold, /*by_shards=*/false, stream);
}

int DecodeShards(Codec codec, DType dtype, const uint8_t* const* rows,
                 int64_t shards, const Sum* tensors, int64_t count, float unit,
                 CUstream_st* stream) {
  if (!(IsAuto(codec) || IsCounts(codec)) || shards < 1) {
    return cudaErrorInvalidValue;
  }
  const int64_t blocks = BlocksOf(tensors, count);
  if (blocks >= kEndOfBlocks) return cudaErrorInvalidValue;
  return Decode(codec, dtype, rows, shards, ShardBlocks(blocks, shards),
                tensors, count, unit, /*by_shards=*/true, stream);
}

const char* ErrorString(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace tf_gc::gpu
