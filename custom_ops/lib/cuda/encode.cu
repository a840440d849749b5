// Encode and Reencode on a GPU.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
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

struct EncodeParams {
  TensorTable<Gradient> tensors;
  MessageLayout layout;
  MessageHeader header;
  float threshold;
  // The messages of `shards` shards from `first_shard` on. The message of the
  // shard `skip` has zeros.
  uint8_t* messages;
  int first_shard;
  int shards;
  int skip;
  // The blocks of this launch, and whether it writes the frames.
  int first;
  int end;
  bool frames;
};

struct ReencodeParams : EncodeParams {
  RowTable rows;
};

// Thread blocks on a multiprocessor, as many as their registers allow.
template <typename Params>
constexpr int kPerMultiprocessor =
    std::is_same_v<Params, ReencodeParams> ? 2 : 4;

// `Definition` is the codec's, and in Reencode the sum codec's; then `Decoder`
// is for the codec of the rows.
template <typename Definition, typename Decoder, typename T, typename Params>
__global__ void __launch_bounds__(kThreads, kPerMultiprocessor<Params>)
    EncodeKernel(const __grid_constant__ Params params) {
  constexpr bool kReencode = std::is_same_v<Params, ReencodeParams>;
  constexpr int kCodeBits = CodeBits(Definition::kCodec);
  const MessageLayout& layout = params.layout;
  const int thread = blockIdx.x * kThreads + threadIdx.x;
  const int threads = gridDim.x * kThreads;
  if (params.frames) {
    for (int i = thread; i < params.shards; i += threads) {
      WriteFrame(layout, params.header, params.messages + i * layout.size);
    }
  }
  float start_of_sum = 0;
  if constexpr (kReencode) {
    start_of_sum = StartOfSum(AnyUnexpected(params.rows));
    // No rows have the sum 0.
    if (params.rows.groups == 0) start_of_sum = 0;
  }

  const int lane = threadIdx.x % Team::kLanes;
  TensorCursor<Gradient> cursor;
  // All lanes of a warp go through the loop together.
  const int of_warp = thread / kWarp * (kWarp / Team::kLanes);
  for (int i = params.first + of_warp; i < params.end;
       i += threads / Team::kLanes) {
    const int block = i + threadIdx.x % kWarp / Team::kLanes;
    const int size = block < params.end && cursor.Seek(params.tensors, block)
                         ? cursor.Size(block)
                         : 0;
    const int shard_of_block = ShardOf(block, layout.blocks);
    const int in_shard =
        block - shard_of_block * static_cast<int>(layout.blocks);
    const int shard = shard_of_block - params.first_shard;
    const bool writes =
        block < params.end && shard >= 0 && shard < params.shards;
    const bool sends = writes && shard != params.skip && size > 0;
    const int64_t first = size > 0 ? cursor.First(block) : 0;
    const T* gradient = static_cast<const T*>(cursor.tensor.gradient) + first;
    const DType dtype = cursor.tensor.residual_dtype;
    const auto* residual_in =
        static_cast<const char*>(cursor.tensor.residual_in);
    auto* residual_out = static_cast<char*>(cursor.tensor.residual_out);
    const bool keeps = residual_in != nullptr;
    if (keeps) {
      residual_in += ResidualBytes(dtype, first);
      residual_out += ResidualBytes(dtype, first);
    }
    float p[Team::kElements];
    float residual[Team::kElements] = {};
    if (!sends && residual_in != residual_out) {
      CopyResidual({lane, size}, dtype, residual_in, residual_out);
    }
    // A block that is not sent is encoded as a block without elements, which
    // gives zeros.
    const Team team = {lane, sends ? size : 0};
    LoadElements(team, cursor.aligned, gradient, p);
    if (keeps) LoadResidual(team, cursor.aligned, dtype, residual_in, residual);
    for (int i = 0; i < Team::kElements; ++i) p[i] += residual[i];
    if constexpr (kReencode) {
      float sums[Team::kElements];
      for (float& sum : sums) sum = start_of_sum;
      if (sends) {
        AddRows<Decoder>(params.rows, in_shard, lane, 0.0f, sums);
      }
      for (int i = 0; i < Team::kElements; ++i) {
        if (team.Inside(i)) p[i] += sums[i];
      }
    }
    uint8_t* message = params.messages + shard * layout.size;
    float kept[Team::kElements];
    uint8_t code[Team::kElements];
    uint16_t scale = 0;
    Definition::Encode(team, p, residual, params.threshold, code, kept, &scale);
    if (!sends) scale = 0;
    StoreCodes<kCodeBits>(lane, code,
                          writes ? layout.Codes(message, in_shard) : nullptr);
    if (HasScales(Definition::kCodec) && writes && lane == 0) {
      *layout.Scales(message, in_shard) = scale;
    }
    StoreResidual(team, cursor.aligned, dtype, kept, residual_out);
  }
}

// Launches the kernel over the blocks [first, end), some of which may be after
// the end of the bucket.
template <typename Definition, typename Decoder, typename T, typename Params>
int LaunchEncode(const Gradient* tensors, int64_t count, int first, int end,
                 Params* params, cudaStream_t stream) {
  params->frames = true;
  return ForTables(tensors, count, &params->tensors,
                   [=](int first_block, int end_block, bool last) -> int {
                     params->first = std::max(first, first_block);
                     params->end = last ? end : std::min(end, end_block);
                     const int blocks = params->end - params->first;
                     if (blocks <= 0 && !params->frames) return cudaSuccess;
                     const int error = Launch<Params>(
                         EncodeKernel<Definition, Decoder, T, Params>, *params,
                         blocks, kTeams, kPerMultiprocessor<Params>, stream);
                     params->frames = false;
                     return error;
                   });
}

}  // namespace

int Encode(Codec codec, DType dtype, const Gradient* tensors, int64_t count,
           int64_t shards, int64_t skip, float threshold, uint8_t* messages,
           CUstream_st* stream) {
  if (!EncodesGradients(codec)) return cudaErrorInvalidValue;
  const int64_t shard_blocks = ShardBlocks(BlocksOf(tensors, count), shards);
  if (shard_blocks * shards >= kEndOfBlocks || shards >= kEndOfBlocks) {
    return cudaErrorInvalidValue;
  }
  if (!IsAligned(messages)) return cudaErrorMisalignedAddress;
  EncodeParams params;
  params.layout = LayoutOf(codec, shard_blocks);
  params.header = HeaderOf(codec, shard_blocks, threshold);
  params.threshold = threshold;
  params.messages = messages;
  params.first_shard = 0;
  params.shards = static_cast<int>(shards);
  params.skip = static_cast<int>(skip);
  const int end = static_cast<int>(shard_blocks * shards);
  return ForType(dtype, cudaErrorInvalidValue, [&](auto* type) -> int {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto launch = [&](auto definition, auto) {
      return LaunchEncode<decltype(definition), void, T>(tensors, count, 0, end,
                                                         &params, stream);
    };
    switch (codec) {
      case Codec::kTwoBitFixed:
        return launch(TwoBitFixed(), nullptr);
      case Codec::kOneBitFixed:
        return launch(OneBitFixed(), nullptr);
      default:
        return ForAutomatic(codec, launch);
    }
  });
}

int Reencode(Codec codec, Codec sum_codec, DType dtype,
             const uint8_t* const* rows, int64_t others,
             const Gradient* tensors, int64_t count, int64_t shard,
             int64_t shards, uint8_t* message, CUstream_st* stream) {
  if (!SumsIn(codec, sum_codec)) return cudaErrorInvalidValue;
  const int64_t blocks = BlocksOf(tensors, count);
  const int64_t shard_blocks = ShardBlocks(blocks, shards);
  if (shard_blocks * shards >= kEndOfBlocks || shards >= kEndOfBlocks) {
    return cudaErrorInvalidValue;
  }
  if (!IsAligned(message)) return cudaErrorMisalignedAddress;
  ReencodeParams params;
  const int error =
      FillRows(codec, shard_blocks, 0.0f, rows, others, &params.rows);
  if (error != cudaSuccess) return error;
  params.layout = LayoutOf(sum_codec, shard_blocks);
  params.header = HeaderOf(sum_codec, shard_blocks, 0.0f);
  params.threshold = 0.0f;
  params.messages = message;
  params.first_shard = static_cast<int>(shard);
  params.shards = 1;
  params.skip = -1;
  int first = static_cast<int>(shard * shard_blocks);
  int end = static_cast<int>(first + shard_blocks);
  const bool in_place =
      std::all_of(tensors, tensors + count, [](const Gradient& tensor) {
        return tensor.residual_in == tensor.residual_out;
      });
  if (!in_place) {  // The residuals of the other shards are copied.
    first = 0;
    end = std::max(end, static_cast<int>(blocks));
  }
  return ForType(dtype, cudaErrorInvalidValue, [&](auto* type) -> int {
    using T = std::remove_pointer_t<decltype(type)>;
    return ForAutomatic(codec, [&](auto of_rows, auto decoder) {
      using OfRows = decltype(of_rows);
      using Decoder = decltype(decoder);
      return ForAutomatic(sum_codec, [&](auto definition, auto) -> int {
        using Definition = decltype(definition);
        if constexpr (SumsIn(OfRows::kCodec, Definition::kCodec)) {
          return LaunchEncode<Definition, Decoder, T>(tensors, count, first,
                                                      end, &params, stream);
        } else {
          return cudaErrorInvalidValue;
        }
      });
    });
  });
}

}  // namespace tf_gc::gpu
