#include "custom_ops/lib/recorder/recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tf_gc {
namespace {

using Lock = std::lock_guard<std::mutex>;

struct Registry {
  std::mutex mutex;
  // Numbers start at a moment, so that a function saved by another process
  // finds no recorder of this one.
  int64_t next = std::chrono::system_clock::now().time_since_epoch().count();
  std::map<int64_t, std::shared_ptr<Recorder>> recorders;
};

// Never destroyed: threads may still run steps when the process ends.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

template <typename T>
void KeepLatest(T value, std::deque<T>* values) {
  if (values->size() == Recorder::kIntervals) values->pop_front();
  values->push_back(value);
}

}  // namespace

bool Recorder::Note(int64_t reduction, bool compressed, int64_t time) {
  Lock lock(mutex_);
  Reduction& mine = reductions_[reduction];
  const int64_t others = steps_[!compressed];
  const int64_t interval = time - mine.time;
  const bool same = mine.steps[compressed] > 0 && mine.compressed == compressed;
  if (!compressed) mine.first.clear();
  if (same) KeepLatest(interval, &mine.tried[compressed]);
  if (same && mine.others == others) {
    const double seconds = 1e-9 * static_cast<double>(interval);
    KeepLatest(seconds, &mine.intervals[compressed]);
    if (compressed && mine.first.size() < kFirst) {
      mine.first.push_back(seconds);
    }
  }
  mine.compressed = compressed;
  mine.time = time;
  mine.others = others;
  ++steps_[compressed];
  const int64_t number = steps_[0] + steps_[1];
  mine.before = mine.number > 0 ? mine.number : number - 1;
  mine.number = number;
  const bool due = mine.steps[compressed]++ % every_ == 0 || mine.trial_ended;
  if (compressed) mine.trial_ended = false;
  return compressed && due;
}

void Recorder::MeasureEvery(int64_t steps) {
  Lock lock(mutex_);
  every_ = std::max<int64_t>(steps, 1);
}

void Recorder::Keep(int64_t reduction, std::vector<double> values) {
  Lock lock(mutex_);
  Reduction& mine = reductions_[reduction];
  mine.measured = std::move(values);
  mine.measured.insert(mine.measured.begin(),
                       static_cast<double>(mine.steps[1]));
}

void Recorder::KeepTrial(int64_t reduction, std::vector<double> values) {
  Lock lock(mutex_);
  Reduction& mine = reductions_[reduction];
  mine.trial = std::move(values);
  mine.trial_ended = true;
}

std::vector<double> Recorder::Read(int64_t reduction, Series series) const {
  Lock lock(mutex_);
  const Reduction& mine = Find(reduction);
  switch (series) {
    case Series::kFullPrecision:
    case Series::kCompressed: {
      const auto& of_kind = mine.intervals[series == Series::kCompressed];
      return {of_kind.begin(), of_kind.end()};
    }
    case Series::kFirst:
      return {mine.first.begin(), mine.first.end()};
    case Series::kSteps:
      return {static_cast<double>(mine.steps[0]),
              static_cast<double>(mine.steps[1]),
              static_cast<double>(mine.compressed),
              static_cast<double>(mine.number),
              static_cast<double>(mine.before)};
    case Series::kMeasured:
      return mine.measured;
    case Series::kTrial:
      return mine.trial;
  }
  return {};
}

int64_t Recorder::Median(int64_t reduction, bool compressed,
                         int64_t latest) const {
  Lock lock(mutex_);
  const std::deque<int64_t>& tried = Find(reduction).tried[compressed];
  const int64_t count = std::min(latest, static_cast<int64_t>(tried.size()));
  if (count < 1) return kNeverTried;
  std::vector<int64_t> times(tried.end() - count, tried.end());
  const auto middle = times.begin() + count / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void Recorder::Forget(int64_t reduction) {
  Lock lock(mutex_);
  reductions_.erase(reduction);
}

const Recorder::Reduction& Recorder::Find(int64_t reduction) const {
  static const Reduction none;
  const auto found = reductions_.find(reduction);
  return found == reductions_.end() ? none : found->second;
}

int64_t MakeRecorder() {
  Registry& registry = TheRegistry();
  Lock lock(registry.mutex);
  registry.recorders[registry.next] = std::make_shared<Recorder>();
  return registry.next++;
}

std::shared_ptr<Recorder> FindRecorder(int64_t number) {
  Registry& registry = TheRegistry();
  Lock lock(registry.mutex);
  const auto found = registry.recorders.find(number);
  return found == registry.recorders.end() ? nullptr : found->second;
}

void FreeRecorder(int64_t number) {
  Registry& registry = TheRegistry();
  Lock lock(registry.mutex);
  registry.recorders.erase(number);
}

}  // namespace tf_gc
