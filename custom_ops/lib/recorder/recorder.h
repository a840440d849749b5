// The times of a strategy's steps, and what was measured in some of them. It is
// kept on the host, where Python reads it without running a graph. Everything
// here may be called from any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tf_gc {

// The series that are kept of a reduction; tf_gc/ops/recorder.py says what is
// in them.
enum class Series : int {
  kFullPrecision = 0,
  kCompressed = 1,
  kFirst = 2,
  kSteps = 3,
  kMeasured = 4,
  kTrial = 5,
};

// A strategy has one recorder. A model trained under it has a number, its
// reduction, since the steps of several models may take turns.
class Recorder {
 public:
  // How many intervals are kept of each kind, and of the first ones.
  static constexpr size_t kIntervals = 256;
  static constexpr size_t kFirst = 64;

  // Notes a step at a time of a steady clock, in nanoseconds. Returns whether
  // to measure this step: the compressed ones that MeasureEvery() says, the
  // first among them, and the first one after a trial.
  bool Note(int64_t reduction, bool compressed, int64_t time);

  // From now on measures every `steps` compressed steps. At first 100.
  void MeasureEvery(int64_t steps);

  // Keeps what was measured in the latest compressed step.
  void Keep(int64_t reduction, std::vector<double> values);

  // Keeps how a trial ended.
  void KeepTrial(int64_t reduction, std::vector<double> values);

  // Empty if there is nothing of that kind.
  std::vector<double> Read(int64_t reduction, Series series) const;

  // The median of the `latest` times, in nanoseconds, from a step to the next
  // one, both of a kind, whatever other reductions do; kNeverTried if there are
  // none.
  int64_t Median(int64_t reduction, bool compressed, int64_t latest) const;
  static constexpr int64_t kNeverTried = INT64_MAX;

  // Forgets a reduction whose model is gone.
  void Forget(int64_t reduction);

 private:
  // Each pair is of steps in full precision and of compressed ones.
  struct Reduction {
    int64_t steps[2] = {};
    std::deque<double> intervals[2];
    std::deque<double> first;
    std::deque<int64_t> tried[2];  // what a median may be of
    std::vector<double> measured;
    std::vector<double> trial;
    bool trial_ended = false;  // since the latest compressed step
    // The latest step, its number, the number of the one before, and how many
    // of the other kind there were then.
    bool compressed = false;
    int64_t time = 0;
    int64_t number = 0;
    int64_t before = 0;
    int64_t others = 0;
  };

  // An empty one if there is none of that number.
  const Reduction& Find(int64_t reduction) const;

  mutable std::mutex mutex_;
  int64_t every_ = 100;
  int64_t steps_[2] = {};  // of all reductions
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
