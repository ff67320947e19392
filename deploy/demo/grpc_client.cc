// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "agent/base/unique_fd.h"
#include "deploy/demo/client.h"
#include "deploy/demo/clock.h"
#include "deploy/demo/event_queue.h"
#include "deploy/demo/under_way.h"

namespace headgate::demo {
namespace {

// grpc.io: doc/statuscodes.md
constexpr int kGrpcOk = 0;
constexpr int kResourceExhausted = 8;

struct SessionDeleter {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};
using SessionPtr = std::unique_ptr<nghttp2_session, SessionDeleter>;

struct Call {
  std::uint32_t use = 0;  ///< tells a deadline of the slot's former call apart
  bool busy = false;
  std::size_t index = 0;
  std::int64_t due_ns = 0;
  std::size_t connection = 0;
  std::int32_t stream = 0;
  std::string_view rest;  ///< of the message, not handed to nghttp2 yet
  std::optional<int> grpc_status;
};

struct Connection {
  UniqueFd fd;
  std::uint32_t use = 0;  ///< tells a late event of the former socket apart
  bool connected = false;
  SessionPtr session;
  std::string out;  ///< bytes of nghttp2 that the socket has not taken
  std::size_t sent = 0;
  std::vector<std::size_t> calls;  ///< under way on it
};

nghttp2_nv header(std::string_view name, std::string_view value) {
  // nghttp2 copies both, and does not write to them.
  const auto octets = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  return {octets(name), octets(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

class GrpcClient final : public Client {
 public:
  GrpcClient(const LoadTarget& target, std::span<Record> records, Ended ended)
      : target_(target), under_way_(records, std::move(ended)), connections_(target.connections) {}

  Result<> open() override {
    if (auto opened = events_.open(); !opened) {
      return opened;
    }
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (connect_to(i) != Outcome::kPending) {
        return sys_fail(errno, "load generator: connect");
      }
    }
    return {};
  }

  [[nodiscard]] bool idle() const override { return under_way_.none(); }

  void start(std::size_t index, std::int64_t due_ns, const std::string& message) override {
    under_way_.begin(index, due_ns);
    const std::size_t slot = calls_.take();
    const std::size_t at = next_connection_;
    next_connection_ = (next_connection_ + 1) % connections_.size();
    Call& call = calls_[slot];
    call.busy = true;
    call.index = index;
    call.due_ns = due_ns;
    call.connection = at;
    call.stream = 0;
    call.rest = message;
    call.grpc_status.reset();
    deadlines_.add({due_ns + std::int64_t{target_.deadline_us} * 1000, slot, call.use});
    Connection& c = connections_[at];
    c.calls.push_back(slot);
    if (!c.fd) {
      if (const Outcome connecting = connect_to(at); connecting != Outcome::kPending) {
        return lose(at, connecting);
      }
    }
    if (c.connected) {
      under_way_.was_connected(index);
    }
    if (!submit(slot)) {
      return lose(at, Outcome::kLocal);
    }
    flush(at);
  }

  Result<> wait(std::int64_t wake_ns) override {
    const auto use_of = [this](std::size_t slot) { return calls_[slot].use; };
    if (const auto* next = deadlines_.next(use_of); next != nullptr) {
      wake_ns = std::min(wake_ns, next->at_ns);
    }
    auto waited = events_.wait(wake_ns, [this](std::uint64_t token, std::uint32_t events) {
      const auto at = static_cast<std::size_t>(token & 0xffffffffU);
      if (connections_[at].fd && connections_[at].use == token >> 32) {
        progress(at, events);
      }
    });
    if (!waited) {
      return waited;
    }
    const std::int64_t now = now_ns();
    const auto* next = deadlines_.next(use_of);
    for (; next != nullptr && next->at_ns <= now; next = deadlines_.next(use_of)) {
      give_up(next->slot);
    }
    return {};
  }

 private:
  void end(std::size_t slot, Outcome outcome) {
    Call& call = calls_[slot];
    under_way_.end(call.index, call.due_ns, outcome);
    call.busy = false;
    ++call.use;
    calls_.give_back(slot);
    std::erase(connections_[call.connection].calls, slot);
    under_way_.over(call.index);
  }

  /// Its time is over: what the server still does for it is for nobody (doc/PROTOCOL-HTTP2.md,
  /// "Errors": CANCEL).
  void give_up(std::size_t slot) {
    const Call call = calls_[slot];
    const Connection& c = connections_[call.connection];
    end(slot, c.connected ? Outcome::kAnswerTimeout : Outcome::kConnectTimeout);
    if (c.session && call.stream > 0) {
      nghttp2_session_set_stream_user_data(c.session.get(), call.stream, nullptr);
      nghttp2_submit_rst_stream(c.session.get(), NGHTTP2_FLAG_NONE, call.stream, NGHTTP2_CANCEL);
      flush(call.connection);
    }
  }

  /// The connection is gone, and every call on it with it. The next call makes it anew.
  void lose(std::size_t at, Outcome outcome) {
    Connection& c = connections_[at];
    c.fd.reset();
    ++c.use;
    c.connected = false;
    c.session.reset();
    c.out.clear();
    c.sent = 0;
    const std::vector<std::size_t> calls = std::exchange(c.calls, {});
    for (const std::size_t slot : calls) {
      end(slot, outcome);
    }
  }

  Outcome connect_to(std::size_t at) {
    Connection& c = connections_[at];
    c.fd = connect_from(target_, at);
    if (!c.fd) {
      return errno == ECONNREFUSED ? Outcome::kRefused : Outcome::kLocal;
    }
    if (!events_.add(c.fd.get(), (std::uint64_t{c.use} << 32) | at)) {
      return Outcome::kLocal;
    }
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session* session = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) {
      return Outcome::kLocal;
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    const bool made = nghttp2_session_client_new(&session, callbacks, this) == 0;
    nghttp2_session_callbacks_del(callbacks);
    if (!made || nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0) != 0) {
      nghttp2_session_del(session);
      return Outcome::kLocal;
    }
    c.session.reset(session);
    return Outcome::kPending;
  }

  bool submit(std::size_t slot) {
    Call& call = calls_[slot];
    const std::array<nghttp2_nv, 7> headers = {header(":method", "POST"),
                                               header(":scheme", "http"),
                                               header(":path", target_.grpc_method),
                                               header(":authority", "collector"),
                                               header("te", "trailers"),
                                               header("content-type", "application/grpc"),
                                               header("grpc-timeout", timeout_)};
    nghttp2_data_provider message{};
    message.source.ptr = &call;
    message.read_callback = on_read;
    call.stream = nghttp2_submit_request(connections_[call.connection].session.get(), nullptr,
                                         headers.data(), headers.size(), &message, &call);
    return call.stream > 0;
  }

  /// Gives the socket what nghttp2 has to send, in as few pieces as it takes.
  void flush(std::size_t at) {
    Connection& c = connections_[at];
    if (!c.connected) {
      return;
    }
    for (;;) {
      if (c.sent == c.out.size()) {
        c.out.clear();
        c.sent = 0;
        const std::uint8_t* data = nullptr;
        for (ssize_t n = 0; c.out.size() < kWrite_bytes &&
                            (n = nghttp2_session_mem_send(c.session.get(), &data)) != 0;) {
          if (n < 0) {
            return lose(at, Outcome::kReset);
          }
          c.out.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(n));
        }
        if (c.out.empty()) {
          return;
        }
      }
      const ssize_t n = send(c.fd.get(), c.out.data() + c.sent, c.out.size() - c.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno != EAGAIN) {
          lose(at, Outcome::kReset);
        }
        return;
      }
      c.sent += static_cast<std::size_t>(n);
    }
  }

  void progress(std::size_t at, std::uint32_t events) {
    Connection& c = connections_[at];
    if (!c.connected) {
      int error = 0;
      socklen_t size = sizeof error;
      if ((events & (EPOLLERR | EPOLLHUP)) != 0 &&
          getsockopt(c.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) {
        return lose(at, error == ECONNREFUSED ? Outcome::kRefused : Outcome::kReset);
      }
      if ((events & EPOLLOUT) == 0) {
        return;
      }
      c.connected = true;
      for (const std::size_t slot : c.calls) {
        under_way_.connected(calls_[slot].index, calls_[slot].due_ns);
      }
    }
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && !receive(at)) {
      return;
    }
    flush(at);
  }

  /// False: the connection is lost.
  bool receive(std::size_t at) {
    Connection& c = connections_[at];
    std::array<std::uint8_t, 16384> buffer{};
    for (;;) {
      const ssize_t n = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
      if (n < 0 && errno == EAGAIN) {
        return true;
      }
      if (n <= 0 || nghttp2_session_mem_recv(c.session.get(), buffer.data(),
                                             static_cast<std::size_t>(n)) != n) {
        lose(at, Outcome::kReset);
        return false;
      }
    }
  }

  static Call* call_of(nghttp2_session* session, std::int32_t stream) {
    return static_cast<Call*>(nghttp2_session_get_stream_user_data(session, stream));
  }

  static ssize_t on_read(nghttp2_session*, std::int32_t, std::uint8_t* buffer, std::size_t length,
                         std::uint32_t* flags, nghttp2_data_source* source, void*) {
    auto& call = *static_cast<Call*>(source->ptr);
    const std::size_t n = std::min(length, call.rest.size());
    std::memcpy(buffer, call.rest.data(), n);
    call.rest.remove_prefix(n);
    if (call.rest.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return static_cast<ssize_t>(n);
  }

  static int on_header(nghttp2_session* session, const nghttp2_frame* frame,
                       const std::uint8_t* name, std::size_t name_length, const std::uint8_t* value,
                       std::size_t value_length, std::uint8_t, void*) {
    Call* call = call_of(session, frame->hd.stream_id);
    const std::string_view key(reinterpret_cast<const char*>(name), name_length);
    if (call != nullptr && key == "grpc-status") {
      const auto* text = reinterpret_cast<const char*>(value);
      int status = -1;
      std::from_chars(text, text + value_length, status);
      call->grpc_status = status;
    }
    return 0;
  }

  static int on_stream_close(nghttp2_session* session, std::int32_t stream, std::uint32_t,
                             void* client) {
    Call* call = call_of(session, stream);
    if (call == nullptr) {
      return 0;  // given up
    }
    auto& self = *static_cast<GrpcClient*>(client);
    const Connection& c = self.connections_[call->connection];
    const auto slot = std::find_if(c.calls.begin(), c.calls.end(),
                                   [&](std::size_t s) { return &self.calls_[s] == call; });
    if (slot != c.calls.end()) {
      self.end(*slot, of_status(call->grpc_status));
    }
    return 0;
  }

  static Outcome of_status(std::optional<int> status) {
    if (!status) {
      return Outcome::kReset;
    }
    return *status == kGrpcOk              ? Outcome::kOk
           : *status == kResourceExhausted ? Outcome::kRefused
                                           : Outcome::kHttpError;
  }

  static constexpr std::size_t kWrite_bytes = 65536;

  const LoadTarget& target_;
  UnderWay under_way_;
  const std::string timeout_ = std::to_string(target_.deadline_us / 1000) + "m";
  EventQueue events_;
  std::vector<Connection> connections_;
  std::size_t next_connection_ = 0;
  Slots<Call> calls_;  // nghttp2 keeps pointers to them
  Deadlines deadlines_;
};

}  // namespace

std::unique_ptr<Client> make_grpc_client(const LoadTarget& target, std::span<Record> records,
                                         Client::Ended ended) {
  return std::make_unique<GrpcClient>(target, records, std::move(ended));
}

}  // namespace headgate::demo
