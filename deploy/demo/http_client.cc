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
#include "deploy/demo/under_way.h"

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
      : target_(target), under_way_(records, std::move(ended)) {}

  Result<> open() override {
    if (auto opened = events_.open(); !opened) {
      return opened;
    }
    for (std::size_t i = 0; i < target_.connections; ++i) {
      const std::size_t slot = slots_.take();
      if (connect_slot(slot, i) != Outcome::kPending) {
        return sys_fail(errno, "load generator: connect");
      }
      kept_.push_back(slot);
    }
    return {};
  }

  [[nodiscard]] bool idle() const override { return under_way_.none(); }

  void start(std::size_t index, std::int64_t due_ns, const std::string& request) override {
    under_way_.begin(index, due_ns);
    const std::optional<std::size_t> kept = take_kept();
    const std::size_t slot = kept ? *kept : slots_.take();
    Connection& c = slots_[slot];
    c.busy = true;
    c.index = index;
    c.due_ns = due_ns;
    c.bytes = &request;
    c.sent = 0;
    c.answer.clear();
    deadlines_.add({due_ns + std::int64_t{target_.deadline_us} * 1000, slot, c.request});
    if (kept) {
      if (c.connected) {
        under_way_.was_connected(index);
        static_cast<void>(send_rest(slot));
      }
    } else if (const Outcome connecting = connect_slot(slot, index);
               connecting != Outcome::kPending) {
      end(slot, connecting);
    }
  }

  Result<> wait(std::int64_t wake_ns) override {
    const auto use_of = [this](std::size_t slot) { return slots_[slot].request; };
    if (const auto* next = deadlines_.next(use_of); next != nullptr) {
      wake_ns = std::min(wake_ns, next->at_ns);
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
    const auto* next = deadlines_.next(use_of);
    for (; next != nullptr && next->at_ns <= now; next = deadlines_.next(use_of)) {
      const std::size_t slot = next->slot;
      end(slot, slots_[slot].connected ? Outcome::kAnswerTimeout : Outcome::kConnectTimeout);
    }
    return {};
  }

 private:
  static Outcome of_connect_error(int error) {
    switch (error) {
      case ECONNREFUSED: return Outcome::kRefused;
      case ECONNRESET: return Outcome::kReset;
      case ETIMEDOUT:
      case EHOSTUNREACH: return Outcome::kConnectTimeout;
      default: return Outcome::kLocal;
    }
  }

  /// The one that has waited longest, so that all clients take their turns.
  std::optional<std::size_t> take_kept() {
    while (!kept_.empty()) {
      const std::size_t slot = kept_.front();
      kept_.pop_front();
      if (slots_[slot].fd) {
        return slot;
      }
      slots_.give_back(slot);  // the server has closed it meanwhile
    }
    return std::nullopt;
  }

  /// kPending: it is under way. Else what became of it.
  Outcome connect_slot(std::size_t slot, std::size_t turn) {
    Connection& c = slots_[slot];
    c.connected = false;
    c.fd = connect_from(target_, turn);
    if (!c.fd) {
      return of_connect_error(errno);
    }
    const bool added = events_.add(c.fd.get(), (std::uint64_t{c.socket} << 32) | slot);
    return added ? Outcome::kPending : Outcome::kLocal;
  }

  void close_slot(std::size_t slot) {
    slots_[slot].fd.reset();
    ++slots_[slot].socket;
  }

  void end(std::size_t slot, Outcome outcome) {
    Connection& c = slots_[slot];
    under_way_.end(c.index, c.due_ns, outcome);
    const bool kept = target_.traffic == Traffic::kKeepAlive && c.answer.whole() &&
                      c.sent == c.bytes->size() && !c.answer.closes();
    c.busy = false;
    ++c.request;
    if (kept) {
      kept_.push_back(slot);
    } else {
      close_slot(slot);
      slots_.give_back(slot);
    }
    under_way_.over(c.index);
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
      under_way_.connected(c.index, c.due_ns);
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
  UnderWay under_way_;
  EventQueue events_;
  Slots<Connection> slots_;
  std::deque<std::size_t> kept_;  // with a connection and no request, longest first
  Deadlines deadlines_;
};

}  // namespace

std::unique_ptr<Client> make_http_client(const LoadTarget& target, std::span<Record> records,
                                         Client::Ended ended) {
  return std::make_unique<HttpClient>(target, records, std::move(ended));
}

}  // namespace headgate::demo
