#include "custom_ops/lib/c_api/recorder_api.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "custom_ops/lib/recorder/recorder.h"

namespace {

bool IsStepKind(int kind) { return 0 <= kind && kind < tf_gc::kStepKinds; }

}  // namespace

int64_t tf_gc_recorder_make(void) { return tf_gc::MakeRecorder(); }

void tf_gc_recorder_free(int64_t recorder) { tf_gc::FreeRecorder(recorder); }

void tf_gc_recorder_measure_every(int64_t recorder, int64_t steps) {
  if (const auto found = tf_gc::FindRecorder(recorder)) {
    found->MeasureEvery(steps);
  }
}

void tf_gc_recorder_forget(int64_t recorder, int64_t reduction) {
  if (const auto found = tf_gc::FindRecorder(recorder)) {
    found->Forget(reduction);
  }
}

int64_t tf_gc_recorder_steps(int64_t recorder, int64_t reduction, int kind) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found == nullptr || !IsStepKind(kind)) return 0;
  return found->Steps(reduction, static_cast<tf_gc::StepKind>(kind));
}

int64_t tf_gc_recorder_capacity(void) { return tf_gc::Recorder::kIntervals; }

int64_t tf_gc_recorder_intervals(int64_t recorder, int64_t reduction, int kind,
                                 int64_t* intervals) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found == nullptr || !IsStepKind(kind)) return 0;
  const std::vector<int64_t> kept =
      found->Intervals(reduction, static_cast<tf_gc::StepKind>(kind));
  std::copy(kept.begin(), kept.end(), intervals);
  return static_cast<int64_t>(kept.size());
}

int64_t tf_gc_recorder_first(int64_t recorder, int64_t reduction,
                             int64_t* intervals) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found == nullptr) return 0;
  const std::vector<int64_t> kept = found->First(reduction);
  std::copy(kept.begin(), kept.end(), intervals);
  return static_cast<int64_t>(kept.size());
}

int64_t tf_gc_recorder_candidate(int64_t recorder, int64_t reduction) {
  const auto found = tf_gc::FindRecorder(recorder);
  return found == nullptr ? -1 : found->Candidate(reduction);
}

int64_t tf_gc_recorder_trial(int64_t recorder, int64_t reduction, int64_t count,
                             int64_t* times) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found == nullptr) return -1;
  int64_t chosen = -1;
  const std::vector<int64_t> kept = found->Trial(reduction, &chosen);
  if (static_cast<int64_t>(kept.size()) != count) return -1;
  std::copy(kept.begin(), kept.end(), times);
  return chosen;
}

int64_t tf_gc_recorder_measured(int64_t recorder, int64_t reduction,
                                int64_t count, double* values) {
  const auto found = tf_gc::FindRecorder(recorder);
  if (found == nullptr) return 0;
  int64_t step = 0;
  const std::vector<double> kept = found->Measured(reduction, &step);
  if (static_cast<int64_t>(kept.size()) != count) return 0;
  std::copy(kept.begin(), kept.end(), values);
  return step;
}
