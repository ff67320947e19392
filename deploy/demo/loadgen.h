// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "headgate/result.h"

#include "deploy/demo/scenario.h"

namespace headgate::demo {

enum class Outcome : std::uint8_t {
  kNotSent,         ///< its time has not come, or the run ended first
  kPending,         ///< under way
  kOk,              ///< 2xx before the deadline
  kRefused,         ///< the SYN was answered by RST, or the request as refusals are
  kReset,           ///< connected, then closed or reset before a whole answer came
  kConnectTimeout,  ///< not connected at the deadline
  kAnswerTimeout,   ///< connected, no whole answer at the deadline
  kHttpError,       ///< a whole answer other than 2xx
  kLocal,           ///< the generator's own fault: no file descriptor, no port
};
[[nodiscard]] std::string_view to_string(Outcome outcome);

/// What became of one arrival. Lives in memory shared by the generator (the only writer) and the
/// process that watches; `outcome` is stored last with release order, so a reader that sees an
/// end state sees the numbers that go with it.
struct Record {
  std::uint32_t lag_us = 0;      ///< how late after its time it was sent
  std::uint32_t connect_us = 0;  ///< from its time to the connection; 0 = never connected
  std::uint32_t latency_us = 0;  ///< from its time (not from when it was sent) to the end
  std::atomic<Outcome> outcome{Outcome::kNotSent};
};
static_assert(std::atomic<Outcome>::is_always_lock_free);

/// Memory shared with children of fork(), zero-filled. Owns the mapping.
class SharedRecords {
 public:
  [[nodiscard]] static Result<SharedRecords> create(std::size_t count);
  SharedRecords(SharedRecords&& other) noexcept;
  SharedRecords& operator=(SharedRecords&&) = delete;
  SharedRecords(const SharedRecords&) = delete;
  SharedRecords& operator=(const SharedRecords&) = delete;
  ~SharedRecords();
  [[nodiscard]] std::span<Record> records() const { return {data_, count_}; }

 private:
  SharedRecords(Record* data, std::size_t count) : data_(data), count_(count) {}
  Record* data_ = nullptr;
  std::size_t count_ = 0;
};

struct LoadTarget {
  sockaddr_in server{};
  std::vector<in_addr> sources;       ///< connections are spread over them in turn
  std::vector<std::string> light;     ///< one whole request a group
  std::vector<std::string> heavy;     ///< the same groups at the cost phase's size
  std::vector<std::string> jump;      ///< the same of 2 MB; empty = no phase has such
  std::vector<std::string> critical;  ///< of the critical class; empty = there is no such class
  std::uint32_t deadline_us = 2'000'000;
  Traffic traffic = Traffic::kConnections;
  std::size_t connections = 0;  ///< made before the first request; kept or multiplexed traffic
  int refused_status = 0;       ///< an answer of this HTTP status is a refusal; 0 = none is
  std::string grpc_method;      ///< full name, with kGrpc; RESOURCE_EXHAUSTED is a refusal there
};

/// Sends every arrival at its time, whatever became of those before it (open loop).
/// Single-threaded; returns when the last one has ended. `start_ns` is CLOCK_MONOTONIC.
[[nodiscard]] Result<> run_open_loop(const LoadTarget& target, const std::vector<Phase>& phases,
                                     const std::vector<Arrival>& arrivals, std::int64_t start_ns,
                                     std::span<Record> records);

/// `concurrency` clients that each send the next request when the last has been answered, for
/// `seconds`: how much the collector can serve. The records are used up in order.
[[nodiscard]] Result<> run_closed_loop(const LoadTarget& target, bool heavy,
                                       std::size_t concurrency, double seconds,
                                       std::span<Record> records);

}  // namespace headgate::demo
