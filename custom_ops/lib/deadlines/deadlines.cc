#include "custom_ops/lib/deadlines/deadlines.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace tf_gc {

Deadlines& Deadlines::Get() {
  static Deadlines* const deadlines = new Deadlines;
  return *deadlines;
}

int64_t Deadlines::Begin(double seconds, std::function<void()> expired) {
  const auto time =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(seconds));
  std::lock_guard<std::mutex> lock(mutex_);
  if (!watched_) {
    std::thread([this] { Watch(); }).detach();
    watched_ = true;
  }
  const int64_t number = next_++;
  deadlines_[number] = {time, std::move(expired)};
  changed_.notify_one();
  return number;
}

void Deadlines::End(int64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The thread wakes at the time of a deadline that has ended, and goes on.
  deadlines_.erase(number);
}

void Deadlines::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto first = std::min_element(deadlines_.begin(), deadlines_.end(),
                                        [](const auto& a, const auto& b) {
                                          return a.second.time < b.second.time;
                                        });
    if (first == deadlines_.end()) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < first->second.time) {
      const auto time = first->second.time;  // `first` may end meanwhile
      changed_.wait_until(lock, time);
    } else {
      const std::function<void()> expired = std::move(first->second.expired);
      deadlines_.erase(first);
      lock.unlock();
      expired();
      lock.lock();
    }
  }
}

}  // namespace tf_gc
