// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "deploy/demo/client.h"
#include "deploy/demo/clock.h"

namespace headgate::demo {

/// The records of the requests under way, for both kinds of clients.
class UnderWay {
 public:
  UnderWay(std::span<Record> records, Client::Ended ended)
      : records_(records), ended_(std::move(ended)) {}

  [[nodiscard]] bool none() const { return count_ == 0; }
  /// It is sent now.
  void begin(std::size_t index, std::int64_t due_ns) {
    Record& record = records_[index];
    record.lag_us = micros_since(due_ns);
    record.outcome.store(Outcome::kPending, std::memory_order_release);
    ++count_;
  }
  /// Its connection was there when it was sent.
  void was_connected(std::size_t index) {
    records_[index].connect_us = std::max(1U, records_[index].lag_us);
  }
  /// Its connection is there now.
  void connected(std::size_t index, std::int64_t due_ns) {
    records_[index].connect_us = std::max(1U, micros_since(due_ns));
  }
  /// What became of it. over() follows, when its place is free.
  void end(std::size_t index, std::int64_t due_ns, Outcome outcome) {
    records_[index].latency_us = micros_since(due_ns);
    records_[index].outcome.store(outcome, std::memory_order_release);
  }
  /// Whoever is told may begin another one.
  void over(std::size_t index) {
    --count_;
    if (ended_) {
      ended_(index);
    }
  }

 private:
  static std::uint32_t micros_since(std::int64_t due_ns) {
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>((now_ns() - due_ns) / 1000, 0, 0xffffffff));
  }

  std::span<Record> records_;
  Client::Ended ended_;
  std::size_t count_ = 0;
};

/// Places that are used again and again; what is in them stays where it is.
template <class T>
class Slots {
 public:
  std::size_t take() {
    if (free_.empty()) {
      all_.emplace_back();
      return all_.size() - 1;
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::size_t slot) { free_.push_back(slot); }
  [[nodiscard]] T& operator[](std::size_t slot) { return all_[slot]; }

 private:
  std::deque<T> all_;
  std::vector<std::size_t> free_;
};

/// Deadlines lie a constant apart from times that only grow: a queue keeps them in order. One whose
/// slot has another request by now (`use`) is passed over.
class Deadlines {
 public:
  struct Deadline {
    std::int64_t at_ns;
    std::size_t slot;
    std::uint32_t use;
  };
  void add(Deadline deadline) { queue_.push_back(deadline); }
  /// The next one; nullptr = there is none. `use_of(slot)`: its request of now.
  template <class UseOf>
  [[nodiscard]] const Deadline* next(UseOf use_of) {
    while (!queue_.empty() && use_of(queue_.front().slot) != queue_.front().use) {
      queue_.pop_front();
    }
    return queue_.empty() ? nullptr : &queue_.front();
  }

 private:
  std::deque<Deadline> queue_;
};

/// A socket that connects to the server from one of the sources, in turn, without waiting. Empty:
/// errno says why.
[[nodiscard]] UniqueFd connect_from(const LoadTarget& target, std::size_t turn);

}  // namespace headgate::demo
