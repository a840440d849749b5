// The compact wire on the CPU: packs messages by the frequency of codes, and
// unpacks them. No loss: the unpacked message has the bytes of the first one.
// No TensorFlow here.
//
// Results are the same bytes for every Target and number of threads.

#pragma once

#include <cstdint>
#include <functional>

#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// Runs task(0), ..., task(tasks - 1), on any threads in any order, and returns
// after the last one.
using RunTasks = std::function<void(int64_t tasks,
                                    const std::function<void(int64_t)>& task)>;

// The bytes that Pack() may write, which are more than it returns.
int64_t PackCapacity(Codec codec, const MessageLayout& layout);

// Packs a message of `layout`, which is LayoutOf(codec, blocks), into at most
// layout.size bytes. `codec` is one that IsCompactible(). `periods`, which
// ArePeriods(), are those that a segment may have. Returns the number of bytes,
// a multiple of kMessageAlignment. A message that does not get smaller is
// copied.
// `message` and `compact` are aligned as WireWord is.
int64_t Pack(Codec codec, const MessageLayout& layout, const Periods& periods,
             const uint8_t* message, uint8_t* compact, const RunTasks& run);

// Unpacks what Pack() made into layout.size bytes. More bytes may follow it, up
// to `size`. False if the lengths, frequencies or words of `compact` do not fit
// together or to `layout`: `message` then holds anything. Changed bytes that
// all fit give another message. A message that Pack() copied is copied back,
// whatever it holds, and of the header of a packed one only the codec and the
// blocks are compared: the caller checks the header of `message`. Reads and
// writes nothing outside of the two arrays, whatever they hold.
bool Unpack(Codec codec, const MessageLayout& layout, const uint8_t* compact,
            int64_t size, uint8_t* message, const RunTasks& run);

}  // namespace tf_gc
