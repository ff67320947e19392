// SPDX-License-Identifier: Apache-2.0
// What the demo sends, and what it makes of the answers.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/base/unique_fd.h"
#include "deploy/demo/loadgen.h"
#include "deploy/demo/otlp.h"

namespace headgate::demo {
namespace {

/// The fields of a protobuf message that are strings, bytes or messages.
std::vector<std::pair<unsigned, std::string>> fields_of(std::string_view message) {
  std::vector<std::pair<unsigned, std::string>> out;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0; at < message.size(); shift += 7) {
      const auto octet = static_cast<std::uint8_t>(message[at++]);
      value |= std::uint64_t{octet & 0x7fU} << shift;
      if (octet < 0x80) {
        break;
      }
    }
    return value;
  };
  while (at < message.size()) {
    const std::uint64_t tag = varint();
    switch (tag & 7U) {
      case 0: varint(); break;
      case 1: at += 8; break;
      case 2: {
        const std::uint64_t length = varint();
        out.emplace_back(static_cast<unsigned>(tag >> 3U), message.substr(at, length));
        at += length;
        break;
      }
      default: ADD_FAILURE() << "wire type " << (tag & 7U); return out;
    }
  }
  return out;
}

TEST(Otlp, ProtobufHoldsTheSameSpans) {
  const auto resource_spans = fields_of(otlp_trace_protobuf(3, 100));
  ASSERT_EQ(resource_spans.size(), 1U);
  const auto parts = fields_of(resource_spans[0].second);
  ASSERT_EQ(parts.size(), 2U);
  const auto spans = fields_of(parts[1].second);
  ASSERT_EQ(spans.size(), 100U);
  const auto json = nlohmann::json::parse(otlp_trace_json(3, 100), nullptr, false);
  const auto& first = json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  const auto fields = fields_of(spans[0].second);
  std::string trace_id;
  for (const char octet : fields[0].second) {
    trace_id += fmt::format("{:02x}", static_cast<std::uint8_t>(octet));
  }
  EXPECT_EQ(fields[0].first, 1U);
  EXPECT_EQ(trace_id, first["traceId"].get<std::string>());
  EXPECT_EQ(fields[2], std::make_pair(5U, first["name"].get<std::string>()));
}

TEST(Otlp, AMessageOfGrpcBeginsWithItsLength) {
  const std::string message = grpc_message(std::string(70'000, 'x'));
  EXPECT_EQ(message.substr(0, 5), std::string("\x00\x00\x01\x11\x70", 5));
  EXPECT_EQ(message.size(), 70'005U);
}

TEST(Otlp, RequestHoldsSoManySpansOfAbout390Bytes) {
  const std::string message = otlp_trace_json(3, 100);
  const auto json = nlohmann::json::parse(message, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  const auto& spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 100U);
  EXPECT_EQ(spans[0]["traceId"].get<std::string>().size(), 32U);
  EXPECT_EQ(spans[0]["spanId"].get<std::string>().size(), 16U);
  EXPECT_NE(spans[0]["traceId"], spans[1]["traceId"]);
  EXPECT_NEAR(static_cast<double>(message.size()) / 100, 390, 40);
}

/// A socket that listens on loopback.
class Listener {
 public:
  Listener() {
    fd_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
    EXPECT_EQ(listen(fd_.get(), 16), 0);
  }
  [[nodiscard]] sockaddr_in address() const { return address_; }
  [[nodiscard]] UniqueFd accept() const {
    return UniqueFd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  UniqueFd fd_;
  sockaddr_in address_{};
};

/// False: the client has closed before its request was whole.
bool read_request(const UniqueFd& connection) {
  std::array<char, 4096> buffer{};
  std::string request;
  while (request.find("\r\n\r\nbody") == std::string::npos) {
    const ssize_t n = read(connection.get(), buffer.data(), buffer.size());
    if (n <= 0) {
      return false;
    }
    request.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return true;
}

void answer(const UniqueFd& connection, const std::string& text) {
  EXPECT_EQ(write(connection.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

/// Treats its n-th connection as the n-th letter says: 'o' answers 200,
/// 'e' answers 503, 'h' answers nothing, 'c' closes at once. One connection at a time.
class Server {
 public:
  explicit Server(std::string script) : script_(std::move(script)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() { thread_.join(); }
  [[nodiscard]] sockaddr_in address() const { return listener_.address(); }

 private:
  void serve() {
    std::vector<UniqueFd> held;
    for (const char c : script_) {
      UniqueFd connection = listener_.accept();
      if (c == 'c') {
        continue;
      }
      if (c == 'h') {
        held.push_back(std::move(connection));
        continue;
      }
      (void)read_request(connection);
      answer(connection, c == 'o'
                             ? "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                             : "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    }
    // What is held is held until the client gives up.
    for (const UniqueFd& connection : held) {
      std::array<char, 4096> buffer{};
      while (read(connection.get(), buffer.data(), buffer.size()) > 0) {
      }
    }
  }

  std::string script_;
  Listener listener_;
  std::thread thread_;
};

TEST(LoadGenerator, TellsOutcomesApart) {
  LoadTarget target;
  const auto shared = SharedRecords::create(5);
  ASSERT_TRUE(shared);
  sockaddr_in closed{};
  {
    Server server("oehc");
    target.server = closed = server.address();
    in_addr loopback{};
    loopback.s_addr = htonl(INADDR_LOOPBACK);
    target.sources = {loopback};
    target.light = target.heavy = {"PUT / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"};
    target.deadline_us = 300'000;
    const std::vector<Phase> phases = {{"one", "one", PhaseKind::kCalm, 1, 20}};
    const std::vector<Arrival> arrivals = {
        {0, 0, 0}, {50'000, 0, 0}, {100'000, 0, 0}, {150'000, 0, 0}};
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    ASSERT_TRUE(run_open_loop(target, phases, arrivals,
                              std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec,
                              shared->records().first(4)));
  }
  const auto outcome = [&](std::size_t i) { return shared->records()[i].outcome.load(); };
  EXPECT_EQ(to_string(outcome(0)), "ok");
  EXPECT_EQ(to_string(outcome(1)), "http_error");
  EXPECT_EQ(to_string(outcome(2)), "answer_timeout");
  EXPECT_GE(shared->records()[2].latency_us, 300'000U);
  EXPECT_EQ(to_string(outcome(3)), "reset");
  // Nobody listens there any more.
  ASSERT_TRUE(run_open_loop(target, {{"one", "one", PhaseKind::kCalm, 1, 1}}, {{0, 0, 0}}, 0,
                            shared->records().last(1)));
  EXPECT_EQ(to_string(outcome(4)), "refused");
}

/// One connection that is kept: answers as the letters say, 'r' by 429, 'x' by closing it.
class KeptServer {
 public:
  explicit KeptServer(std::string script) : script_(std::move(script)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~KeptServer() { thread_.join(); }
  [[nodiscard]] sockaddr_in address() const { return listener_.address(); }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  void serve() {
    UniqueFd connection;
    for (const char c : script_) {
      if (!connection) {
        connection = listener_.accept();
        ++connections_;
      }
      if (!read_request(connection)) {
        return;
      }
      if (c == 'x') {
        connection.reset();
        continue;
      }
      answer(connection, c == 'o' ? "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
                                  : "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n"
                                    "Content-Length: 3\r\n\r\n   ");
    }
  }

  std::string script_;
  Listener listener_;
  int connections_ = 0;
  std::thread thread_;
};

TEST(LoadGenerator, KeepsAConnectionAndTellsARefusedRequestApart) {
  LoadTarget target;
  in_addr loopback{};
  loopback.s_addr = htonl(INADDR_LOOPBACK);
  target.sources = {loopback};
  target.light = target.heavy = {"PUT / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"};
  target.deadline_us = 300'000;
  target.traffic = Traffic::kKeepAlive;
  target.connections = 1;
  target.refused_status = 429;
  const auto shared = SharedRecords::create(5);
  ASSERT_TRUE(shared);
  {
    KeptServer server("orxor");
    target.server = server.address();
    const std::vector<Phase> phases = {{"one", "one", PhaseKind::kCalm, 1, 20}};
    std::vector<Arrival> arrivals;
    for (std::uint32_t i = 0; i < 5; ++i) {
      arrivals.push_back({i * 50'000, 0, 0});
    }
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    ASSERT_TRUE(run_open_loop(target, phases, arrivals,
                              std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec,
                              shared->records()));
    EXPECT_EQ(server.connections(), 2);
  }
  std::vector<std::string_view> outcomes;
  for (const Record& record : shared->records()) {
    outcomes.push_back(to_string(record.outcome.load()));
  }
  EXPECT_THAT(outcomes, testing::ElementsAre("ok", "refused", "reset", "ok", "refused"));
}

}  // namespace
}  // namespace headgate::demo
