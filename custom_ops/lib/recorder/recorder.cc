#include "custom_ops/lib/recorder/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace tf_gc {
namespace {

using Lock = std::lock_guard<std::mutex>;

int Index(StepKind kind) { return static_cast<int>(kind); }

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

}  // namespace

bool Recorder::Note(int64_t reduction, StepKind kind, int64_t candidate,
                    int64_t time) {
  Lock lock(mutex_);
  Reduction& mine = reductions_[reduction];
  const int i = Index(kind);
  const int64_t others = steps_[1 - i];
  const int64_t interval = time - mine.time;
  const bool same = mine.began && mine.candidate == candidate;
  if (!same) {
    mine.intervals[i].clear();
    mine.written[i] = 0;
  }
  if (!same || kind == StepKind::kFullPrecision) mine.first.clear();
  if (mine.candidate != candidate) {
    mine.measured.clear();
    mine.measured_step = 0;
  }
  if (same && candidate >= 0) {
    std::vector<int64_t>& tried = mine.tried[candidate];
    if (tried.size() == kTried) tried.erase(tried.begin());
    tried.push_back(interval);
  }
  if (same && mine.kind == kind && mine.others == others) {
    std::vector<int64_t>& intervals = mine.intervals[i];
    if (intervals.size() < kIntervals) {
      intervals.push_back(interval);
    } else {
      intervals[mine.written[i] % kIntervals] = interval;
    }
    ++mine.written[i];
    if (kind == StepKind::kCompressed && mine.first.size() < kFirst) {
      mine.first.push_back(interval);
    }
  }
  mine.began = true;
  mine.kind = kind;
  mine.candidate = candidate;
  mine.time = time;
  mine.others = others;
  ++steps_[i];
  const bool unknown =
      candidate >= 0 && candidate == mine.chosen && mine.measured.empty();
  const bool due = mine.steps[i]++ % every_ == 0;
  return (due || unknown) && kind == StepKind::kCompressed;
}

int64_t Recorder::Candidate(int64_t reduction) const {
  Lock lock(mutex_);
  const auto found = reductions_.find(reduction);
  return found == reductions_.end() ? -1 : found->second.candidate;
}

std::vector<int64_t> Recorder::Medians(int64_t reduction, int64_t candidates,
                                       int64_t latest) const {
  Lock lock(mutex_);
  std::vector<int64_t> medians(static_cast<size_t>(candidates), kNeverTried);
  const auto found = reductions_.find(reduction);
  if (found == reductions_.end()) return medians;
  for (const auto& [candidate, tried] : found->second.tried) {
    const int64_t count = std::min(latest, static_cast<int64_t>(tried.size()));
    if (candidate >= candidates || count < 1) continue;
    std::vector<int64_t> times(tried.end() - count, tried.end());
    const auto middle = times.begin() + count / 2;
    std::nth_element(times.begin(), middle, times.end());
    medians[static_cast<size_t>(candidate)] = *middle;
  }
  return medians;
}

void Recorder::KeepTrial(int64_t reduction, std::vector<int64_t> times,
                         int64_t chosen) {
  Lock lock(mutex_);
  Reduction& mine = reductions_[reduction];
  mine.trial = std::move(times);
  mine.chosen = chosen;
}

std::vector<int64_t> Recorder::Trial(int64_t reduction, int64_t* chosen) const {
  Lock lock(mutex_);
  const auto found = reductions_.find(reduction);
  *chosen = found == reductions_.end() ? -1 : found->second.chosen;
  return found == reductions_.end() ? std::vector<int64_t>()
                                    : found->second.trial;
}

void Recorder::Keep(int64_t reduction, const double* values, int64_t count) {
  Lock lock(mutex_);
  Reduction& mine = reductions_[reduction];
  mine.measured.assign(values, values + count);
  mine.measured_step = mine.steps[Index(StepKind::kCompressed)];
}

void Recorder::MeasureEvery(int64_t steps) {
  Lock lock(mutex_);
  every_ = std::max<int64_t>(steps, 1);
}

int64_t Recorder::Steps(int64_t reduction, StepKind kind) const {
  Lock lock(mutex_);
  const auto found = reductions_.find(reduction);
  return found == reductions_.end() ? 0 : found->second.steps[Index(kind)];
}

std::vector<int64_t> Recorder::Intervals(int64_t reduction,
                                         StepKind kind) const {
  Lock lock(mutex_);
  const auto found = reductions_.find(reduction);
  if (found == reductions_.end()) return {};
  std::vector<int64_t> intervals = found->second.intervals[Index(kind)];
  if (intervals.size() == kIntervals) {
    std::rotate(intervals.begin(),
                intervals.begin() +
                    static_cast<std::ptrdiff_t>(
                        found->second.written[Index(kind)] % kIntervals),
                intervals.end());
  }
  return intervals;
}

std::vector<int64_t> Recorder::First(int64_t reduction) const {
  Lock lock(mutex_);
  const auto found = reductions_.find(reduction);
  if (found == reductions_.end()) return {};
  return found->second.first;
}

std::vector<double> Recorder::Measured(int64_t reduction, int64_t* step) const {
  Lock lock(mutex_);
  const auto found = reductions_.find(reduction);
  *step = found == reductions_.end() ? 0 : found->second.measured_step;
  return found == reductions_.end() ? std::vector<double>()
                                    : found->second.measured;
}

void Recorder::Forget(int64_t reduction) {
  Lock lock(mutex_);
  reductions_.erase(reduction);
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
