// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace headgate::lab {

/// Others have so much to do that a quota on the CPU is not the limit of what runs under it.
inline bool machine_is_busy() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 && load > 1.5 * std::thread::hardware_concurrency();
}

/// From so much mean delay of a canary on, others have the CPU.
inline constexpr double kLate_ms = 1;

/// A thread that sleeps, and sees how late it comes to run while it lives: on a CPU that others
/// take away, be they of another guest, it is late.
class Canary {
 public:
  Canary()
      : thread_([this] {
          while (!stop_) {
            const auto begin = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(kSleep);
            late_ += std::chrono::steady_clock::now() - begin - kSleep;
            sleeps_ += 1;
          }
        }) {}
  Canary(const Canary&) = delete;
  Canary& operator=(const Canary&) = delete;
  ~Canary() { end(); }

  /// Milliseconds of mean delay. Ends it.
  [[nodiscard]] double late_ms() {
    end();
    return sleeps_ > 0 ? std::chrono::duration<double, std::milli>(late_).count() / sleeps_ : 0;
  }

 private:
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  static constexpr std::chrono::milliseconds kSleep{5};
  std::atomic<bool> stop_{false};
  std::chrono::steady_clock::duration late_{};
  double sleeps_ = 0;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace headgate::lab
