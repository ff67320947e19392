// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "deploy/demo/client.h"
#include "deploy/demo/clock.h"
#include "deploy/demo/event_queue.h"

namespace headgate::demo {
namespace {

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
  [[nodiscard]] bool closes() const {
    return find_in_head("\r\nconnection: close") != std::string::npos;
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
    const std::size_t name = find_in_head("\r\ncontent-length:");
    if (name == std::string::npos) {
      return;
    }
    std::size_t i = text_.find(':', name) + 1;
    while (i < body_begin_ && text_[i] == ' ') {
      ++i;
    }
    std::size_t length = 0;
    if (std::from_chars(text_.data() + i, text_.data() + body_begin_, length).ec == std::errc{}) {
      content_length_ = length;
    }
  }

  /// `lower`: in lower case.
  [[nodiscard]] std::size_t find_in_head(std::string_view lower) const {
    const auto same = [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b;
    };
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(body_begin_);
    const auto at = std::search(text_.begin(), end, lower.begin(), lower.end(), same);
    return at == end ? std::string::npos : static_cast<std::size_t>(at - text_.begin());
  }

  std::string text_;
  std::size_t body_begin_ = 0;
  std::size_t body_bytes_ = 0;
  std::optional<std::size_t> content_length_;
};

struct Connection {
  UniqueFd fd;
  std::uint32_t socket = 0;   ///< tells a late event of the slot's former socket apart
  std::uint32_t request = 0;  ///< the same for a deadline of a former request
  bool connected = false;
  bool busy = false;  ///< what follows is of the request on it
  std::size_t index = 0;
  std::int64_t due_ns = 0;
  const std::string* bytes = nullptr;
  std::size_t sent = 0;
  Answer answer;
};

class HttpClient final : public Client {
 public:
  HttpClient(const LoadTarget& target, std::span<Record> records, Ended ended)
      : target_(target), records_(records), ended_(std::move(ended)) {}

  Result<> open() override {
    if (auto opened = events_.open(); !opened) {
      return opened;
    }
    for (std::size_t i = 0; i < target_.connections; ++i) {
      const std::size_t slot = take_slot();
      if (connect_slot(slot, i) != Outcome::kPending) {
        return sys_fail(errno, "load generator: connect");
      }
      kept_.push_back(slot);
    }
    return {};
  }

  [[nodiscard]] bool idle() const override { return under_way_ == 0; }

  void start(std::size_t index, std::int64_t due_ns, const std::string& request) override {
    Record& record = records_[index];
    record.lag_us = micros(now_ns() - due_ns);
    record.outcome.store(Outcome::kPending, std::memory_order_release);
    ++under_way_;
    const std::optional<std::size_t> kept = take_kept();
    const std::size_t slot = kept ? *kept : take_slot();
    Connection& c = slots_[slot];
    c.busy = true;
    c.index = index;
    c.due_ns = due_ns;
    c.bytes = &request;
    c.sent = 0;
    c.answer.clear();
    deadlines_.push_back({due_ns + std::int64_t{target_.deadline_us} * 1000, slot, c.request});
    if (kept) {
      if (c.connected) {
        record.connect_us = std::max(1U, record.lag_us);
        static_cast<void>(send_rest(slot));
      }
    } else if (const Outcome connecting = connect_slot(slot, index);
               connecting != Outcome::kPending) {
      end(slot, connecting);
    }
  }

  Result<> wait(std::int64_t wake_ns) override {
    drop_settled_deadlines();
    if (!deadlines_.empty()) {
      wake_ns = std::min(wake_ns, deadlines_.front().at_ns);
    }
    auto waited = events_.wait(wake_ns, [this](std::uint64_t token, std::uint32_t events) {
      const auto slot = static_cast<std::size_t>(token & 0xffffffffU);
      if (slots_[slot].fd && slots_[slot].socket == token >> 32) {
        progress(slot, events);
      }
    });
    if (!waited) {
      return waited;
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
    std::uint32_t request;
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

  /// The one that has waited longest, so that all clients take their turns.
  std::optional<std::size_t> take_kept() {
    while (!kept_.empty()) {
      const std::size_t slot = kept_.front();
      kept_.pop_front();
      if (slots_[slot].fd) {
        return slot;
      }
      free_.push_back(slot);  // the server has closed it meanwhile
    }
    return std::nullopt;
  }

  /// kPending: it is under way. Else what became of it.
  Outcome connect_slot(std::size_t slot, std::size_t turn) {
    Connection& c = slots_[slot];
    c.connected = false;
    c.fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!c.fd) {
      return Outcome::kLocal;
    }
    const int on = 1;
    sockaddr_in source{};
    source.sin_family = AF_INET;
    source.sin_addr = target_.sources[turn % target_.sources.size()];
    // The port is chosen by connect(), by the whole 4-tuple (ip(7)): a source is not used up by
    // 28,000 connections in TIME_WAIT.
    if (setsockopt(c.fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) != 0 ||
        bind(c.fd.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source) != 0) {
      return Outcome::kLocal;
    }
    if (connect(c.fd.get(), reinterpret_cast<const sockaddr*>(&target_.server),
                sizeof target_.server) != 0 &&
        errno != EINPROGRESS) {
      return of_connect_error(errno);
    }
    const bool added = events_.add(c.fd.get(), (std::uint64_t{c.socket} << 32) | slot);
    return added ? Outcome::kPending : Outcome::kLocal;
  }

  void close_slot(std::size_t slot) {
    slots_[slot].fd.reset();
    ++slots_[slot].socket;
  }

  // Deadlines lie a constant apart from times that only grow: a queue keeps them in order.
  void drop_settled_deadlines() {
    while (!deadlines_.empty() &&
           slots_[deadlines_.front().slot].request != deadlines_.front().request) {
      deadlines_.pop_front();
    }
  }

  void end(std::size_t slot, Outcome outcome) {
    Connection& c = slots_[slot];
    Record& record = records_[c.index];
    record.latency_us = micros(now_ns() - c.due_ns);
    record.outcome.store(outcome, std::memory_order_release);
    const bool kept = target_.traffic == Traffic::kKeepAlive && c.answer.whole() &&
                      c.sent == c.bytes->size() && !c.answer.closes();
    c.busy = false;
    ++c.request;
    if (kept) {
      kept_.push_back(slot);
    } else {
      close_slot(slot);
      free_.push_back(slot);
    }
    --under_way_;
    if (ended_) {
      ended_(c.index);
    }
  }

  /// False: the request has ended.
  bool send_rest(std::size_t slot) {
    Connection& c = slots_[slot];
    while (c.sent < c.bytes->size()) {
      const ssize_t n = send(c.fd.get(), c.bytes->data() + c.sent, c.bytes->size() - c.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EAGAIN) {
          break;
        }
        end(slot, Outcome::kReset);
        return false;
      }
      c.sent += static_cast<std::size_t>(n);
    }
    return true;
  }

  void progress(std::size_t slot, std::uint32_t events) {
    Connection& c = slots_[slot];
    if (!c.connected && !connected(slot, events)) {
      return;
    }
    if (!c.busy) {
      if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        close_slot(slot);  // take_kept() finds it closed
      }
      return;
    }
    if (!send_rest(slot)) {
      return;
    }
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && !receive(slot)) {
      return;
    }
    // A connection that is kept is not done with before the whole request is sent.
    if (c.answer.whole() && (target_.traffic != Traffic::kKeepAlive || c.sent == c.bytes->size())) {
      end(slot, of_answer(c.answer));
    }
  }

  /// False: not yet, or it could not be.
  bool connected(std::size_t slot, std::uint32_t events) {
    Connection& c = slots_[slot];
    int error = 0;
    socklen_t size = sizeof error;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 &&
        getsockopt(c.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) {
      if (c.busy) {
        end(slot, of_connect_error(error));
      } else {
        close_slot(slot);
      }
      return false;
    }
    if ((events & EPOLLOUT) == 0) {
      return false;
    }
    c.connected = true;
    if (c.busy) {
      records_[c.index].connect_us = std::max(1U, micros(now_ns() - c.due_ns));
    }
    return true;
  }

  /// Reads what there is. False: the request has ended.
  bool receive(std::size_t slot) {
    Connection& c = slots_[slot];
    std::array<char, 4096> buffer{};
    while (!c.answer.whole()) {
      const ssize_t n = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
      if (n > 0) {
        c.answer.append({buffer.data(), static_cast<std::size_t>(n)});
        continue;
      }
      if (n < 0 && errno == EAGAIN) {
        return true;
      }
      // The end of the stream ends an answer without a length (RFC 9112, section 6.3).
      const bool complete = n == 0 && c.answer.head_seen() && !c.answer.has_length();
      end(slot, complete ? of_answer(c.answer) : Outcome::kReset);
      return false;
    }
    return true;
  }

  [[nodiscard]] Outcome of_answer(const Answer& answer) const {
    if (answer.status() / 100 == 2) {
      return Outcome::kOk;
    }
    return answer.status() == target_.refused_status ? Outcome::kRefused : Outcome::kHttpError;
  }

  const LoadTarget& target_;
  std::span<Record> records_;
  Ended ended_;
  EventQueue events_;
  std::deque<Connection> slots_;  // deque: growing keeps references
  std::vector<std::size_t> free_;
  std::deque<std::size_t> kept_;  // with a connection and no request, longest first
  std::deque<Deadline> deadlines_;
  std::size_t under_way_ = 0;
};

}  // namespace

std::unique_ptr<Client> make_http_client(const LoadTarget& target, std::span<Record> records,
                                         Client::Ended ended) {
  return std::make_unique<HttpClient>(target, records, std::move(ended));
}

}  // namespace headgate::demo
