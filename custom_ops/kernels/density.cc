#include "custom_ops/kernels/density.h"

#include <map>
#include <mutex>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/lib/codec/sent.h"

namespace tf_gc {
namespace {

struct Tally {
  int64_t elements = 0;
  int64_t sent = 0;
  int64_t verdicts = 0;
  bool warned = false;
};

}  // namespace

void DensityWatch::Observe(float threshold, int64_t elements,
                           const MessageLayout& layout, const uint8_t* messages,
                           int64_t shards) {
  static std::mutex mutex;
  static auto* const tallies = new std::map<float, Tally>;

  const int64_t sent =
      SentInMessages(Codec::kTwoBitFixed, layout, messages, shards);
  const int step = steps_.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex);
  Tally& tally = (*tallies)[threshold];
  if (step == 0) verdicts_before_ = tally.verdicts;
  // Of the kernels that began together, the first one that is through its steps
  // judges for all.
  if (tally.verdicts != verdicts_before_) return;
  tally.elements += elements;
  tally.sent += sent;
  if (step != kSteps - 1) return;
  if (!tally.warned && tally.sent < tally.elements / kRarely) {
    tally.warned = true;
    const double density =
        static_cast<double>(tally.sent) / static_cast<double>(tally.elements);
    // One string: TensorFlow 2.19 and 2.20 export no `LOG << number`.
    LOG(WARNING) << absl::StrCat(
        "tf_gc: threshold ", threshold, " sent ", tally.sent, " of ",
        tally.elements, " gradient elements in the first ", kSteps,
        " steps (density ", density,
        "): hardly anything is sent. A smaller threshold, or "
        "threshold=\"auto\", sends more.");
  }
  tally.elements = tally.sent = 0;
  ++tally.verdicts;
}

}  // namespace tf_gc
