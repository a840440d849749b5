// The codecs over whole buckets, on GPUs. No TensorFlow here, and no CUDA
// header: device pointers, counts and a stream.
//
// Messages and residuals are the same bits as the CPU's. A function enqueues
// its kernels on `stream` and returns a cudaError_t, 0 for success. It does not
// wait for the device and allocates nothing, so that it may be called while a
// CUDA graph is captured; the arrays of structs are host memory that is not
// used after the call. They point at memory of the current device.
//
// Messages start at multiples of 16 bytes, as TensorFlow's tensors and their
// rows do. The other arrays need no more than the alignment of their elements,
// and are faster at 16 bytes.

#pragma once

#include <cstdint>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

struct CUstream_st;

namespace tf_gc::gpu {

// A tensor of a bucket to be encoded.
struct Gradient {
  const void* gradient;     // a DType each
  const void* residual_in;  // the same array as residual_out, or one that
  void* residual_out;       // does not overlap with it; or both are null
  int64_t size;             // elements
  DType residual_dtype = DType::kFloat;  // or kBFloat16, kInt8
};

// A tensor of a bucket to be decoded.
struct Sum {
  void* sum;     // a DType each
  int64_t size;  // elements
};

// `rows` are the starts of messages, on the device; the array is on the host.
// Rows that follow each other without a gap, as rows of one tensor do, count
// as one group.
constexpr int kMaxRowGroups = 64;

// The functions below return cudaErrorInvalidValue for a codec that they do not
// take, for more than kMaxRowGroups groups of rows and for 2^30 blocks or more,
// cudaErrorMisalignedAddress for messages that do not start at a multiple of 16
// bytes.
//
// The caller has compared the lengths of the rows with LayoutOf(). Only the
// device can compare their headers: everything that is made from a row with
// another header than the expected one is "not finite".

// The description of an error, in English.
const char* ErrorString(int error);

// Encodes a bucket into `shards` messages of LayoutOf(codec,
// ShardBlocks(blocks, shards)).size bytes that follow each other, headers,
// padding and unused blocks included. `threshold` is 0 for automatic codecs.
// The shard `skip`, -1 for none, is not encoded: its message has zeros, and its
// residuals are copied to `residual_out`.
int Encode(Codec codec, DType dtype, const Gradient* tensors, int64_t count,
           int64_t shards, int64_t skip, float threshold, uint8_t* messages,
           CUstream_st* stream);

// Writes the sums of `replicas` >= 1 rows, each a message of the bucket.
int DecodeSum(Codec codec, DType dtype, const uint8_t* const* rows,
              int64_t replicas, const Sum* tensors, int64_t count,
              float threshold, CUstream_st* stream);

// Encodes the sum of the rows, gradients and residuals of the shard number
// `shard` into a message, as tf_gc::Reencode() does. The rows are the messages
// of the shard from the `others` >= 0 other replicas. The residuals of other
// shards are copied to `residual_out`. SumsIn(codec, sum_codec).
int Reencode(Codec codec, Codec sum_codec, DType dtype,
             const uint8_t* const* rows, int64_t others,
             const Gradient* tensors, int64_t count, int64_t shard,
             int64_t shards, uint8_t* message, CUstream_st* stream);

// Sums the rows, `replicas` messages of `blocks` blocks of `codec`, into one
// message of CountsCodec(BitsOfCount(replicas)). `codec` is fixed.
int Count(Codec codec, float threshold, const uint8_t* const* rows,
          int64_t replicas, int64_t blocks, uint8_t* message,
          CUstream_st* stream);

// Decodes a bucket of `shards` shards, each of which has a row. `codec` is
// automatic, and `unit` is 0; or `codec` is one of counts, and a count of 1
// stands for `unit`.
int DecodeShards(Codec codec, DType dtype, const uint8_t* const* rows,
                 int64_t shards, const Sum* tensors, int64_t count, float unit,
                 CUstream_st* stream);

}  // namespace tf_gc::gpu
