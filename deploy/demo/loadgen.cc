// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/loadgen.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <deque>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "agent/base/unique_fd.h"
#include "deploy/demo/clock.h"

namespace headgate::demo {
namespace {

constexpr std::uint64_t kTimerEvent = ~std::uint64_t{0};

/// How far an answer has been read.
class Answer {
 public:
  void clear() {
    text_.clear();
    body_begin_ = 0;
    content_length_.reset();
  }

  void append(std::string_view bytes) {
    // Only the head is kept; of a body only its length matters.
    if (body_begin_ == 0) {
      text_.append(bytes);
      const std::size_t end = text_.find("\r\n\r\n");
      if (end == std::string::npos) {
        return;
      }
      body_begin_ = end + 4;
      body_bytes_ = text_.size() - body_begin_;
      read_content_length();
    } else {
      body_bytes_ += bytes.size();
    }
  }

  [[nodiscard]] bool head_seen() const { return body_begin_ != 0; }
  [[nodiscard]] bool has_length() const { return content_length_.has_value(); }
  [[nodiscard]] bool whole() const {
    return head_seen() && content_length_ && body_bytes_ >= *content_length_;
  }
  /// 0 = not an HTTP answer.
  [[nodiscard]] int status() const {
    int code = 0;
    if (text_.size() >= 12 && text_.compare(0, 7, "HTTP/1.") == 0) {
      std::from_chars(text_.data() + 9, text_.data() + 12, code);
    }
    return code;
  }

 private:
  void read_content_length() {
    static constexpr std::string_view kName = "\r\ncontent-length:";
    const auto same = [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b;
    };
    const auto at =
        std::search(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(body_begin_),
                    kName.begin(), kName.end(), same);
    std::size_t i = static_cast<std::size_t>(at - text_.begin()) + kName.size();
    while (i < body_begin_ && text_[i] == ' ') {
      ++i;
    }
    std::size_t length = 0;
    if (i < body_begin_ &&
        std::from_chars(text_.data() + i, text_.data() + body_begin_, length).ec == std::errc{}) {
      content_length_ = length;
    }
  }

  std::string text_;
  std::size_t body_begin_ = 0;
  std::size_t body_bytes_ = 0;
  std::optional<std::size_t> content_length_;
};

struct Connection {
  UniqueFd fd;
  std::uint32_t generation = 0;  ///< tells a late event of the slot's former user apart
  std::size_t index = 0;         ///< arrival it belongs to
  std::int64_t due_ns = 0;
  const std::string* request = nullptr;
  std::size_t sent = 0;
  bool connected = false;
  Answer answer;
};

/// The connections under way. Knows nothing of when to start one: both loops drive it.
class Client {
 public:
  using Ended = std::function<void(std::size_t index)>;

  Client(const LoadTarget& target, std::span<Record> records, Ended ended)
      : target_(target), records_(records), ended_(std::move(ended)) {}

  Result<> open() {
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!epoll_ || !timer_) {
      return sys_fail(errno, "load generator: epoll or timerfd");
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kTimerEvent;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) {
      return sys_fail(errno, "load generator: epoll_ctl");
    }
    return {};
  }

  [[nodiscard]] bool idle() const { return under_way_ == 0; }

  void start(std::size_t index, std::int64_t due_ns, const std::string& request) {
    Record& record = records_[index];
    record.lag_us = micros(now_ns() - due_ns);
    record.outcome.store(Outcome::kPending, std::memory_order_release);
    ++under_way_;
    const std::size_t slot = take_slot();
    Connection& c = slots_[slot];
    c.index = index;
    c.due_ns = due_ns;
    c.request = &request;
    c.sent = 0;
    c.connected = false;
    c.answer.clear();
    deadlines_.push_back({due_ns + std::int64_t{target_.deadline_us} * 1000, slot, c.generation});

    c.fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!c.fd) {
      return end(slot, Outcome::kLocal);
    }
    const int on = 1;
    sockaddr_in source{};
    source.sin_family = AF_INET;
    source.sin_addr = target_.sources[index % target_.sources.size()];
    // The port is chosen by connect(), by the whole 4-tuple (ip(7)): a source is not used up by
    // 28,000 connections in TIME_WAIT.
    if (setsockopt(c.fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) != 0 ||
        bind(c.fd.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source) != 0) {
      return end(slot, Outcome::kLocal);
    }
    if (connect(c.fd.get(), reinterpret_cast<const sockaddr*>(&target_.server),
                sizeof target_.server) != 0 &&
        errno != EINPROGRESS) {
      return end(slot, of_connect_error(errno));
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = (std::uint64_t{c.generation} << 32) | slot;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c.fd.get(), &event) != 0) {
      return end(slot, Outcome::kLocal);
    }
  }

  /// Handles what has happened and waits until `wake_ns` at most (or the next deadline).
  Result<> wait(std::int64_t wake_ns) {
    drop_settled_deadlines();
    if (!deadlines_.empty()) {
      wake_ns = std::min(wake_ns, deadlines_.front().at_ns);
    }
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(wake_ns / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(wake_ns % 1'000'000'000);
    if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) != 0) {
      return sys_fail(errno, "load generator: timerfd_settime");
    }
    std::array<epoll_event, 256> events{};
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (n < 0 && errno != EINTR) {
      return sys_fail(errno, "load generator: epoll_wait");
    }
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kTimerEvent) {
        std::uint64_t expirations = 0;
        if (read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EAGAIN) {
          return sys_fail(errno, "load generator: read timerfd");
        }
        continue;
      }
      const auto slot = static_cast<std::size_t>(event.data.u64 & 0xffffffffU);
      if (slots_[slot].fd && slots_[slot].generation == event.data.u64 >> 32) {
        progress(slot, event.events);
      }
    }
    const std::int64_t now = now_ns();
    for (drop_settled_deadlines(); !deadlines_.empty() && deadlines_.front().at_ns <= now;
         drop_settled_deadlines()) {
      const std::size_t slot = deadlines_.front().slot;
      end(slot, slots_[slot].connected ? Outcome::kAnswerTimeout : Outcome::kConnectTimeout);
    }
    return {};
  }

 private:
  struct Deadline {
    std::int64_t at_ns;
    std::size_t slot;
    std::uint32_t generation;
  };

  static std::uint32_t micros(std::int64_t ns) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ns / 1000, 0, 0xffffffff));
  }

  static Outcome of_connect_error(int error) {
    switch (error) {
      case ECONNREFUSED: return Outcome::kRefused;
      case ECONNRESET: return Outcome::kReset;
      case ETIMEDOUT:
      case EHOSTUNREACH: return Outcome::kConnectTimeout;
      default: return Outcome::kLocal;
    }
  }

  std::size_t take_slot() {
    if (free_.empty()) {
      slots_.emplace_back();
      return slots_.size() - 1;
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  // Deadlines lie a constant apart from times that only grow: a queue keeps them in order.
  void drop_settled_deadlines() {
    while (!deadlines_.empty() &&
           slots_[deadlines_.front().slot].generation != deadlines_.front().generation) {
      deadlines_.pop_front();
    }
  }

  void end(std::size_t slot, Outcome outcome) {
    Connection& c = slots_[slot];
    Record& record = records_[c.index];
    record.latency_us = micros(now_ns() - c.due_ns);
    record.outcome.store(outcome, std::memory_order_release);
    c.fd.reset();
    ++c.generation;
    free_.push_back(slot);
    --under_way_;
    if (ended_) {
      ended_(c.index);
    }
  }

  void progress(std::size_t slot, std::uint32_t events) {
    Connection& c = slots_[slot];
    if (!c.connected) {
      int error = 0;
      socklen_t size = sizeof error;
      if ((events & (EPOLLERR | EPOLLHUP)) != 0 &&
          getsockopt(c.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) {
        return end(slot, of_connect_error(error));
      }
      if ((events & EPOLLOUT) == 0) {
        return;
      }
      c.connected = true;
      records_[c.index].connect_us = std::max(1U, micros(now_ns() - c.due_ns));
    }
    while (c.sent < c.request->size()) {
      const ssize_t n = send(c.fd.get(), c.request->data() + c.sent, c.request->size() - c.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EAGAIN) {
          break;
        }
        return end(slot, Outcome::kReset);
      }
      c.sent += static_cast<std::size_t>(n);
    }
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0) {
      return;
    }
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t n = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
      if (n > 0) {
        c.answer.append({buffer.data(), static_cast<std::size_t>(n)});
        if (c.answer.whole()) {
          return end(slot, of_answer(c.answer));
        }
        continue;
      }
      if (n < 0 && errno == EAGAIN) {
        return;
      }
      // The end of the stream ends an answer without a length (RFC 9112, section 6.3).
      const bool complete = n == 0 && c.answer.head_seen() && !c.answer.has_length();
      return end(slot, complete ? of_answer(c.answer) : Outcome::kReset);
    }
  }

  static Outcome of_answer(const Answer& answer) {
    return answer.status() / 100 == 2 ? Outcome::kOk : Outcome::kHttpError;
  }

  const LoadTarget& target_;
  std::span<Record> records_;
  Ended ended_;
  UniqueFd epoll_;
  UniqueFd timer_;
  std::deque<Connection> slots_;  // deque: growing keeps references
  std::vector<std::size_t> free_;
  std::deque<Deadline> deadlines_;
  std::size_t under_way_ = 0;
};

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNotSent: return "not_sent";
    case Outcome::kPending: return "pending";
    case Outcome::kOk: return "ok";
    case Outcome::kRefused: return "refused";
    case Outcome::kReset: return "reset";
    case Outcome::kConnectTimeout: return "connect_timeout";
    case Outcome::kAnswerTimeout: return "answer_timeout";
    case Outcome::kHttpError: return "http_error";
    case Outcome::kLocal: return "local";
  }
  return "?";
}

Result<SharedRecords> SharedRecords::create(std::size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Record), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return sys_fail(errno, "memory for the records of the load");
  }
  auto* data = static_cast<Record*>(memory);
  std::uninitialized_default_construct_n(data, count);
  return SharedRecords(data, count);
}

SharedRecords::SharedRecords(SharedRecords&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}

SharedRecords::~SharedRecords() {
  if (data_ != nullptr) {
    munmap(data_, count_ * sizeof(Record));
  }
}

Result<> run_open_loop(const LoadTarget& target, const std::vector<Phase>& phases,
                       const std::vector<Arrival>& arrivals, std::int64_t start_ns,
                       std::span<Record> records) {
  Client client(target, records, nullptr);
  if (auto opened = client.open(); !opened) {
    return opened;
  }
  std::size_t next = 0;
  const auto due_ns = [&](std::size_t i) {
    return start_ns + std::int64_t{arrivals[i].at_us} * 1000;
  };
  while (next < arrivals.size() || !client.idle()) {
    while (next < arrivals.size() && due_ns(next) <= now_ns()) {
      const Arrival& arrival = arrivals[next];
      const bool heavy = phases[arrival.phase].kind == PhaseKind::kCost;
      client.start(next, due_ns(next), (heavy ? target.heavy : target.light)[arrival.group]);
      ++next;
    }
    const std::int64_t far = now_ns() + 1'000'000'000;
    if (auto waited = client.wait(next < arrivals.size() ? due_ns(next) : far); !waited) {
      return waited;
    }
  }
  return {};
}

Result<> run_closed_loop(const LoadTarget& target, bool heavy, std::size_t concurrency,
                         double seconds, std::span<Record> records) {
  const std::vector<std::string>& requests = heavy ? target.heavy : target.light;
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::size_t next = 0;
  std::size_t free_clients = concurrency;
  Client client(target, records, [&](std::size_t) { ++free_clients; });
  if (auto opened = client.open(); !opened) {
    return opened;
  }
  while (now_ns() < end_ns || !client.idle()) {
    while (free_clients > 0 && next < records.size() && now_ns() < end_ns) {
      --free_clients;
      client.start(next, now_ns(), requests[next % requests.size()]);
      ++next;
    }
    if (auto waited = client.wait(now_ns() + 10'000'000); !waited) {
      return waited;
    }
  }
  return {};
}

}  // namespace headgate::demo
