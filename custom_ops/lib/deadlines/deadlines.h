// Calls functions at a later time, unless that is revoked before. All functions
// here may be called from any thread.

#pragma once

#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace tf_gc {

class Deadlines {
 public:
  // The process's deadlines. Their thread never ends.
  static Deadlines& Get();

  // Calls `expired` in `seconds` seconds, and returns a number for End.
  int64_t Begin(double seconds, std::function<void()> expired);

  // Forgets a deadline; does nothing if there is none of that number.
  void End(int64_t number);

 private:
  struct Deadline {
    std::chrono::steady_clock::time_point time;
    std::function<void()> expired;
  };

  Deadlines();
  void Watch();

  std::mutex mutex_;
  // By the steady clock. std::condition_variable is so only with a newer C
  // library than some systems have that TensorFlow runs on.
  pthread_cond_t changed_;
  int64_t next_ = 0;
  bool watched_ = false;
  std::map<int64_t, Deadline> deadlines_;
};

}  // namespace tf_gc
