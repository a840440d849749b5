// The compact wire on GPUs: packs messages into fewer bytes without loss, and
// unpacks them. No TensorFlow here, and no CUDA header.
//
// What is packed has the bytes that the CPU's tf_gc::Pack() makes. As in
// codec.h, a function enqueues its kernels on `stream`, does not wait,
// allocates nothing, and returns a cudaError_t: cudaErrorInvalidValue for a
// codec that is not IsCompactible(), for 2^30 blocks or more, for a negative
// size and for periods that are not ArePeriods(), cudaErrorMisalignedAddress
// for memory that does not start at a multiple of 16 bytes (`bytes`: 8).

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_COMPACT_H_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_COMPACT_H_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/wire/wire.h"

struct CUstream_st;

namespace tf_gc {
namespace gpu {

// The bytes of `space` for a message of `blocks` blocks. `codec` is one that
// IsCompactible().
int64_t PackSpace(Codec codec, int64_t blocks);
int64_t UnpackSpace(Codec codec, int64_t blocks);

// Packs a message of `blocks` blocks into at most LayoutOf(codec, blocks).size
// bytes, and writes their number to `bytes`, in device memory. Each segment
// gets the period that suits it best, or none. A message that does not get
// smaller is copied.
int Pack(Codec codec, int64_t blocks, const Periods& periods,
         const uint8_t* message, uint8_t* compact, int64_t* bytes,
         uint8_t* space, CUstream_st* stream);

// Unpacks what Pack() made, which may be followed by more bytes up to `size`,
// into a message of `blocks` blocks. Reads and writes nothing outside of these
// arrays, whatever they hold. If tf_gc::Unpack() would return false, the header
// of `message` is all zeros: whatever the functions of codec.h make of it is
// "not finite" then. Its codes and scales may be anything.
int Unpack(Codec codec, int64_t blocks, const uint8_t* compact, int64_t size,
           uint8_t* message, uint8_t* space, CUstream_st* stream);

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_COMPACT_H_
