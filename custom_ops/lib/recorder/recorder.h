// What the steps of a strategy say of themselves: when they were, and what was
// measured in some of them. It is kept on the host, where Python reads it
// without running a graph. Everything here may be called from any thread.

#ifndef TF_GC_CUSTOM_OPS_LIB_RECORDER_RECORDER_H_
#define TF_GC_CUSTOM_OPS_LIB_RECORDER_RECORDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tf_gc {

// How a step sums gradients.
enum class StepKind : int { kFullPrecision = 0, kCompressed = 1 };
constexpr int kStepKinds = 2;

// A strategy has one recorder. A model trained under it has a number, its
// reduction, since the steps of several models may take turns.
class Recorder {
 public:
  // How many of the latest intervals are kept, for each kind of step.
  static constexpr int kIntervals = 256;
  // How many of the first intervals after the latest step in full precision.
  static constexpr int kFirst = 64;

  // How many of the latest intervals are kept for each candidate of a trial.
  static constexpr int kTried = 64;

  // Notes a step of a reduction at a time of a steady clock, in nanoseconds.
  // `candidate` is the number of the way to sum gradients that the step takes,
  // where there is a choice, and else -1. Returns whether to measure this step:
  // every so many compressed ones, the first among them and the first one after
  // a trial. What was measured of another candidate is forgotten.
  bool Note(int64_t reduction, StepKind kind, int64_t candidate, int64_t time);

  // Keeps what was measured in the latest compressed step of a reduction.
  void Keep(int64_t reduction, const double* values, int64_t count);

  // From now on measures every `steps` >= 1 compressed steps. At first 100.
  void MeasureEvery(int64_t steps);

  // How many steps of a kind there were.
  int64_t Steps(int64_t reduction, StepKind kind) const;

  // The times from each step to the next, in nanoseconds, the oldest first:
  // where both are of this kind, and no step of the other kind, of whatever
  // reduction, was between them. Those before the candidate changed are gone.
  std::vector<int64_t> Intervals(int64_t reduction, StepKind kind) const;

  // The same of compressed steps, but those that follow the latest step in full
  // precision.
  std::vector<int64_t> First(int64_t reduction) const;

  // The candidate of the latest step, -1 if there is none.
  int64_t Candidate(int64_t reduction) const;

  // For each of so many candidates the median of the times from each of its
  // steps to the next, in nanoseconds, of the `latest` ones at most;
  // kNeverTried for a candidate without such times.
  std::vector<int64_t> Medians(int64_t reduction, int64_t candidates,
                               int64_t latest) const;
  static constexpr int64_t kNeverTried = INT64_MAX;

  // Keeps how a trial ended: the time of each candidate, and the one chosen.
  void KeepTrial(int64_t reduction, std::vector<int64_t> times, int64_t chosen);

  // What was kept of the latest trial, and the candidate chosen. Empty, and -1,
  // if none has ended.
  std::vector<int64_t> Trial(int64_t reduction, int64_t* chosen) const;

  // What was kept last, and the number of the compressed step, from 1 on.
  // Empty, and 0, if nothing was.
  std::vector<double> Measured(int64_t reduction, int64_t* step) const;

  // Forgets a reduction whose model is gone.
  void Forget(int64_t reduction);

 private:
  struct Reduction {
    int64_t steps[kStepKinds] = {};
    std::vector<int64_t> intervals[kStepKinds];
    std::vector<int64_t> first;
    int64_t written[kStepKinds] = {};  // intervals, those overwritten too
    // The latest step, if there was one, and how many steps of the other kind
    // there were then.
    bool began = false;
    StepKind kind = StepKind::kFullPrecision;
    int64_t candidate = -1;
    int64_t time = 0;
    int64_t others = 0;
    std::map<int64_t, std::vector<int64_t>> tried;  // by candidate
    std::vector<int64_t> trial;
    int64_t chosen = -1;
    std::vector<double> measured;
    int64_t measured_step = 0;
  };

  mutable std::mutex mutex_;
  int64_t every_ = 100;
  int64_t steps_[kStepKinds] = {};  // of all reductions
  std::map<int64_t, Reduction> reductions_;
};

// Makes a recorder, and returns the number by which ops find it.
int64_t MakeRecorder();

// Null if there is none. A function that another process saved may well ask for
// such a number.
std::shared_ptr<Recorder> FindRecorder(int64_t number);

// Ops that have found it keep it alive.
void FreeRecorder(int64_t number);

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_RECORDER_RECORDER_H_
