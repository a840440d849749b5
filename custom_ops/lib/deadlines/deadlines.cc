#include "custom_ops/lib/deadlines/deadlines.h"

#include <time.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace tf_gc {
namespace {

// A time of the steady clock, as pthread_cond_timedwait() takes it.
timespec TimeOf(std::chrono::steady_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const std::chrono::nanoseconds rest = since - seconds;
  return {static_cast<time_t>(seconds.count()),
          static_cast<long>(rest.count())};
}

}  // namespace

Deadlines::Deadlines() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed_, &attributes);
  pthread_condattr_destroy(&attributes);
}

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
  pthread_cond_signal(&changed_);
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
      pthread_cond_wait(&changed_, mutex_.native_handle());
    } else if (std::chrono::steady_clock::now() < first->second.time) {
      const timespec time = TimeOf(first->second.time);
      pthread_cond_timedwait(&changed_, mutex_.native_handle(), &time);
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
