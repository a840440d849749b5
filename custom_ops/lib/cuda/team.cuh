// A block on a GPU: 16 lanes share it, so that a warp has two blocks, and each
// lane has 8 of its 128 elements, which are two 16-byte accesses of float32:
//
//   lane l of 16:  elements 4 l to 4 l + 3 and 64 + 4 l to 64 + 4 l + 3

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// A team of block.h. All lanes of a warp call its functions together.
struct Team {
  static constexpr int kLanes = 16;
  static constexpr int kElements = kBlockSize / kLanes;
  static constexpr int kQuad = 4;  // elements that follow each other
  static constexpr int kQuads = kElements / kQuad;

  int lane;  // of kLanes
  int size;  // elements of the block that are in the tensor

  // The place in the block of a lane's element i.
  static __device__ int Index(int lane, int i) {
    return i / kQuad * (kBlockSize / kQuads) + lane * kQuad + i % kQuad;
  }

  __device__ bool Inside(int i) const { return Index(lane, i) < size; }

  // TreeSum() adds over the bits of an element's index in the order 4, 5, 6, 3,
  // 2, 1, 0. Bits 2 to 5 of the index are the lane's number; bits 0, 1 and 6
  // choose one of the lane's elements. In each of the first two steps a lane
  // keeps half of its sums and hands the other half to its partner. So the sum
  // takes 10 shuffles instead of 32.
  __device__ float Sum(const float* values) const {
    const bool bit4 = lane & 4;
    float four[4];  // bit 4 is done; bit 1 is the lane's bit 4
    for (int i = 0; i < 4; ++i) {
      const int low = i % 2 + i / 2 * 4;
      four[i] = Exchange(values[low], values[low + 2], bit4, 4);
    }
    const bool bit5 = lane & 8;
    float two[2];  // bit 5 is done; bit 0 is the lane's bit 5
    for (int i = 0; i < 2; ++i) {
      two[i] = Exchange(four[2 * i], four[2 * i + 1], bit5, 8);
    }
    float sum = two[0] + two[1];                      // bit 6
    sum += __shfl_xor_sync(kAllLanes, sum, 2);        // bit 3
    sum += __shfl_xor_sync(kAllLanes, sum, 1);        // bit 2
    sum += __shfl_xor_sync(kAllLanes, sum, 4);        // bit 1
    return sum + __shfl_xor_sync(kAllLanes, sum, 8);  // bit 0
  }

  __device__ float Max(float value) const {
    for (int step = kLanes / 2; step > 0; step /= 2) {
      value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
    }
    return value;
  }

  __device__ bool All(bool condition) const {
    const unsigned lanes = __ballot_sync(kAllLanes, condition);
    const unsigned own = (1u << kLanes) - 1;
    return (lanes >> (threadIdx.x % kWarp - lane) & own) == own;
  }

  __device__ bool AllTeams(bool condition) const {
    return __all_sync(kAllLanes, condition);
  }

 private:
  // The sum of one of the two values over the lane and its partner.
  static __device__ float Exchange(float low, float high, bool keep_high,
                                   int partner) {
    const float handed =
        __shfl_xor_sync(kAllLanes, keep_high ? low : high, partner);
    return (keep_high ? high : low) + handed;
  }
};

// Where the bits of a nibble's or a byte's elements are: the first element's in
// the high bits, as in codes of one and two bits, or in the low one, as in
// planes.
enum class Order { kFirstHigh, kFirstLow };

// Where the codes of a block are: an aligned array (a pointer), or in a row's
// part (wire/rows_wire.h), which has only the first `size` bytes of each plane,
// anywhere. The functions below take either.
template <typename Byte>
struct PartCodes {
  Byte* plane;
  int size;

  __device__ bool operator==(std::nullptr_t) const { return plane == nullptr; }
  __device__ uint8_t operator[](int i) const { return i < size ? plane[i] : 0; }
};

// The codes of a plane and those after it.
template <typename Codes>
__device__ inline Codes PlaneOf(const Codes& codes, int number) {
  if constexpr (std::is_pointer_v<Codes>) {
    return codes == nullptr ? nullptr : codes + number * kPlaneBytes;
  } else {
    return {codes.plane + number * codes.size, codes.size};
  }
}

template <typename Codes>
__device__ inline uint32_t LoadWord(const Codes& codes, int at) {
  if constexpr (std::is_pointer_v<Codes>) {
    return *reinterpret_cast<const uint32_t*>(codes + at);
  } else {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t{codes[at + i]} << 8 * i;
    return word;
  }
}

template <typename Word, typename Codes>
__device__ inline void StoreWord(const Codes& codes, int at, uint32_t word) {
  if constexpr (std::is_pointer_v<Codes>) {
    *reinterpret_cast<Word*>(codes + at) = static_cast<Word>(word);
  } else {
    const int end = at + static_cast<int>(sizeof(Word));
    for (int i = at; i < end && i < codes.size; ++i, word >>= 8) {
      codes.plane[i] = static_cast<uint8_t>(word);
    }
  }
}

// Stores the packed codes of a lane's quads, kBits * 4 bits for each quad, in a
// block's codes. Neighbouring lanes join their codes first, so that each store
// has the codes of 16 elements.
template <int kBits, Order kOrder, typename Codes>
__device__ inline void StoreQuads(int lane, const unsigned* quads,
                                  const Codes& codes) {
  constexpr int kQuadBits = kBits * Team::kQuad;
  // An odd lane takes the second quad of both, an even one the first.
  const bool odd = lane & 1;
  unsigned own = odd ? quads[1] : quads[0];
  unsigned other = __shfl_xor_sync(kAllLanes, odd ? quads[0] : quads[1], 1);
  const unsigned even_lanes = odd ? other : own;
  const unsigned odd_lanes = odd ? own : other;
  own = kQuadBits == 8 || kOrder == Order::kFirstLow
            ? even_lanes | odd_lanes << kQuadBits
            : even_lanes << kQuadBits | odd_lanes;
  other = __shfl_xor_sync(kAllLanes, own, 2);
  if (codes == nullptr || (lane & 2) != 0) return;
  const unsigned word = own | other << 2 * kQuadBits;
  constexpr int kBytes = kQuadBits / 2;
  using Word = std::conditional_t<kBytes == 4, uint32_t, uint16_t>;
  StoreWord<Word>(
      codes, (odd ? kBlockSize * kBits / 16 : 0) + lane / 4 * kBytes, word);
}

// Packs and stores the codes of a lane's elements.
template <int kBits, typename Codes>
__device__ inline void StoreCodes(int lane, const uint8_t* code,
                                  const Codes& codes) {
  if constexpr (InPlanes(kBits)) {
    for (int plane = 0; plane < kBits; ++plane) {
      unsigned quads[Team::kQuads] = {};
      for (int i = 0; i < Team::kElements; ++i) {
        quads[i / Team::kQuad] |= (code[i] >> plane & 1u) << i % Team::kQuad;
      }
      StoreQuads<1, Order::kFirstLow>(lane, quads, PlaneOf(codes, plane));
    }
  } else if constexpr (kBits == 8) {
    if (codes == nullptr) return;
    for (int quad = 0; quad < Team::kQuads; ++quad) {
      uint32_t word;
      memcpy(&word, code + quad * Team::kQuad, sizeof(word));
      StoreWord<uint32_t>(codes, Team::Index(lane, quad * Team::kQuad), word);
    }
  } else {
    unsigned quads[Team::kQuads] = {};
    for (int i = 0; i < Team::kElements; ++i) {
      const int shift = kBits * (Team::kQuad - 1 - i % Team::kQuad);
      quads[i / Team::kQuad] |= static_cast<unsigned>(code[i]) << shift;
    }
    StoreQuads<kBits, Order::kFirstHigh>(lane, quads, codes);
  }
}

// The bytes that hold a lane's quads of codes, or of a plane of codes if kBits
// is 1, as they are in a message.
template <int kBits, Order kOrder = Order::kFirstHigh>
struct CodeBytesOfLane {
  uint8_t quads[Team::kQuads];

  template <typename Codes>
  static __device__ CodeBytesOfLane Load(int lane, const Codes& codes) {
    const int byte = lane * kBits / 2;
    return {codes[byte], codes[byte + kBlockSize * kBits / 16]};
  }

  // The kBits * 4 bits of a quad's codes.
  __device__ unsigned Quad(int lane, int quad) const {
    const unsigned byte = quads[quad];
    const bool high = (lane % 2 == 0) == (kOrder == Order::kFirstHigh);
    return kBits == 2 ? byte : byte >> (high ? 4 : 0) & 0x0fu;
  }
};

}  // namespace tf_gc::gpu
