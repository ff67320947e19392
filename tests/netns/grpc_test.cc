// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP/2 on real connections: real gRPC clients and servers, and bytes that must come
// out as they went in.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include "agent/dataplane/method_keys.h"
#include "agent/dataplane/programs.h"
#include "tests/netns/gate_lab.h"
#include "tests/support/child.h"
#include "tests/support/http2_traffic.h"

namespace headgate {
namespace {

using lab::Cgroup;
using lab::Child;
using lab::GateLab;
using lab::Pair;
using lab::Port;
using lab::SetupError;

constexpr std::uint16_t kPort = 4317;
constexpr const char* kTraces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr const char* kLogs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
constexpr const char* kHealth = "/grpc.health.v1.Health/Check";
/// Of grpc-go, when it is told no other.
constexpr int kServerLimit_bytes = 4 << 20;

/// The stages on the live connections of one port with two routes.
class Requests : public testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    HEADGATE_REQUIRES(lab::missing_for_sock_ops());
    lab_ = std::make_unique<GateLab>(lab::unified_root());
    port_ = std::make_unique<Port>(lab_->protect(net_.server, kPort));
    headgate_endpoint_key key{};
    key.netns_id = net_.server.inode();
    key.port = kPort;
    key.protocol = IPPROTO_TCP;
    GateLab::must(lab_->maps->map_flow(key, {port_->slot(), HEADGATE_REF_REQUESTS}));
    start_server();
    lab_->count_connections(*port_, cgroup_, net_.server);
    lab_->count_payload(*port_, cgroup_, net_.server);
    rest_ = route(1);
    traces_ = route(2);
    add_method(kTraces, *traces_, HEADGATE_ROUTE_UNARY);
    add_method(kHealth, *rest_, HEADGATE_ROUTE_EXEMPT);
    look_at(HEADGATE_REQUESTS_HTTP2 | HEADGATE_REQUESTS_REFUSE);
    lab_->see_requests({{HEADGATE_STAGE_HTTP1, Program::kStreamHttp1},
                        {HEADGATE_STAGE_HTTP2, Program::kStreamHttp2}});
  }

  /// In the cgroup, before programs are attached to it.
  virtual void start_server() = 0;
  [[nodiscard]] int map(const char* name) const { return lab_->maps->fd(name); }
  void look_at(std::uint32_t flags) {
    headgate_request_port rules{};
    rules.rest = rest_->slot();
    rules.flags = flags;
    rules.generation = ++generation_;
    const std::uint32_t slot = port_->slot();
    ASSERT_EQ(::bpf_map_update_elem(map("headgate_request_ports"), &slot, &rules, BPF_ANY), 0);
  }
  void add_method(const std::string& method, const Port& to, std::uint32_t flags) {
    const headgate_route value{to.slot(), flags};
    for (const headgate_method_key& key : method_keys(port_->slot(), method)) {
      ASSERT_EQ(::bpf_map_update_elem(map("headgate_methods"), &key, &value, BPF_ANY), 0);
    }
  }
  /// The share of every route and of the rest.
  void admit(double share, std::uint64_t modifiers = 0) {
    for (Port* one : {rest_.get(), traces_.get()}) {
      one->admit(share, modifiers);
    }
  }
  /// How many are of unknown class for this reason.
  [[nodiscard]] std::uint64_t unknown(headgate_unknown reason) const {
    const headgate_unknown_key key{port_->slot(), static_cast<std::uint32_t>(reason)};
    std::uint64_t count = 0;
    (void)::bpf_map_lookup_elem(map("headgate_unknowns"), &key, &count);
    return count;
  }

  Pair net_;
  Cgroup cgroup_{"grpc"};
  std::unique_ptr<GateLab> lab_;
  std::unique_ptr<Port> port_, rest_, traces_;

 private:
  std::unique_ptr<Port> route(std::uint16_t number) {
    auto out = std::make_unique<Port>(*lab_->maps, 100 + number, number, IPPROTO_TCP);
    out->policy.level = HEADGATE_LEVEL_ROUTE;
    out->policy.parent = port_->slot();
    out->refuse_by(HEADGATE_ACTION_GRPC_EXHAUSTED);
    out->publish();
    return out;
  }
  std::uint32_t generation_ = 0;
};

std::string missing_for_grpc() {
  return std::string_view(HEADGATE_GRPC_PEER).empty()
             ? "needs the Debian packages golang-go and golang-google-grpc-dev"
             : "";
}

class Grpc : public Requests {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES(missing_for_grpc());
    Requests::SetUp();
  }
  void start_server() override {
    const std::string address = "0.0.0.0:" + std::to_string(kPort);
    server_ = std::make_unique<Child>(net_.server, cgroup_, [&] {
      ::execl(HEADGATE_GRPC_PEER, "grpc_peer", "serve", address.c_str(), nullptr);
    });
    ASSERT_EQ(server_->read(6), "ready\n");
  }
  /// Statuses of `calls` calls by grpc-go.
  std::map<std::string, int> call(const std::string& method, int calls, int parallel, int bytes,
                                  const std::string& compressor = "") {
    std::vector<std::string> argv = {HEADGATE_GRPC_PEER, "call", server_address(), method};
    for (const int number : {calls, parallel, bytes}) {
      argv.push_back(std::to_string(number));
    }
    if (!compressor.empty()) {
      argv.push_back(compressor);
    }
    return lab::numbers_of(net_.client.command(argv));
  }
  [[nodiscard]] std::string server_address() const {
    return net_.at_server().ipv4 + ":" + std::to_string(kPort);
  }
  /// What ends by age, if nothing ever did.
  [[nodiscard]] std::int64_t aged_bytes() const {
    std::int64_t out = 0;
    for (const std::uint64_t bytes : port_->target_state().live_aged) {
      out += static_cast<std::int64_t>(bytes);
    }
    return out;
  }
  /// How often the server's handlers have run; ends it.
  std::map<std::string, int> served() { return lab::numbers_of(server_->finish()); }

  void expect_half(const std::map<std::string, int>& statuses, int calls) {
    std::map<std::string, int> rest = statuses;
    const int ok = rest.extract("OK").mapped();
    const auto refused = rest.extract("ResourceExhausted");
    ASSERT_FALSE(refused.empty());
    EXPECT_TRUE(rest.empty()) << "another status: " << rest.begin()->first;
    EXPECT_EQ(ok + refused.mapped(), calls);
    const headgate_counters counted = traces_->counters();
    EXPECT_EQ(counted.offered, static_cast<std::uint64_t>(calls));
    EXPECT_EQ(counted.answered, static_cast<std::uint64_t>(refused.mapped()));
    EXPECT_EQ(counted.admitted, static_cast<std::uint64_t>(ok));
    // Each but those whose message straddled two packets.
    EXPECT_NEAR(refused.mapped() + static_cast<double>(counted.admitted_guarded), calls / 2.0,
                lab::tolerance());
    EXPECT_LE(counted.admitted_guarded, static_cast<std::uint64_t>(calls) / 20 + 2);
    EXPECT_EQ(served()[kTraces], ok);
    EXPECT_GE(port_->counters().recognized, 1U);
    std::uint64_t cookie = 0;
    EXPECT_TRUE(lab::eventually([&] {
      return ::bpf_map_get_next_key(map("headgate_stream_states"), nullptr, &cookie) != 0;
    })) << "a connection that has ended is still known";
  }

  std::unique_ptr<Child> server_;
};

TEST_F(Grpc, HalfOfTheCallsAreResourceExhausted) {
  admit(.5);
  expect_half(call(kTraces, 2000, 16, 1000), 2000);
  EXPECT_EQ(traces_->counters().payload_bytes, 2000U * 1005);
}

TEST_F(Grpc, HalfOfLargeCallsToo) {
  admit(.5);
  expect_half(call(kTraces, 300, 16, 1'000'000), 300);
}

TEST_F(Grpc, HalfOfCompressedCallsToo) {
  admit(.5);
  expect_half(call(kTraces, 300, 8, 200'000, "gzip"), 300);
}

/// Writes ":path" out and uses no Huffman code; what the client sees is the same.
TEST_F(Grpc, HalfOfTheCallsOfCCoreToo) {
  HEADGATE_REQUIRES(std::system("/usr/bin/python3 -c 'import grpc' 2>/dev/null") == 0
                        ? ""
                        : "needs the Debian package python3-grpcio");
  admit(.5);
  const std::string script = R"(
import collections, concurrent.futures, grpc, sys
call = grpc.insecure_channel(sys.argv[1]).unary_unary(sys.argv[2])
def status(number):
    try:
        call(bytes(number * 50), timeout=20)
        return "OK"
    except grpc.RpcError as error:
        return {grpc.StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted"}.get(error.code(), error.code())
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for name, count in collections.Counter(pool.map(status, range(1000))).items():
        print(name, count)
)";
  expect_half(lab::numbers_of(net_.client.command(
                  {"/usr/bin/python3", "-c", script, server_address(), kTraces})),
              1000);
}

using Statuses = std::map<std::string, int>;

TEST_F(Grpc, ExemptMethodsAndThoseThatAreNoRouteAreNeverRefused) {
  admit(0);
  EXPECT_EQ(call(kHealth, 300, 4, 10), (Statuses{{"OK", 300}}));
  EXPECT_EQ(call(kLogs, 300, 4, 10), (Statuses{{"OK", 300}}));
  EXPECT_EQ(call(kTraces, 100, 4, 10), (Statuses{{"ResourceExhausted", 100}}));
  EXPECT_EQ(rest_->counters().admitted_exempt, 300U);
  EXPECT_EQ(rest_->counters().admitted_guarded, 300U) << "not known to be unary";
  EXPECT_EQ(served(), (Statuses{{kHealth, 300}, {kLogs, 300}}));
}

TEST_F(Grpc, LeaseObserveSwitchAndPortHoldHereToo) {
  admit(0);
  traces_->publish(-std::chrono::seconds(1));
  EXPECT_EQ(call(kTraces, 50, 4, 10), (Statuses{{"OK", 50}}));
  EXPECT_EQ(traces_->counters().admitted_stale, 50U);
  admit(0, HEADGATE_OBSERVE);
  EXPECT_EQ(call(kTraces, 50, 4, 10), (Statuses{{"OK", 50}}));
  EXPECT_EQ(traces_->counters().admitted_observed, 50U);
  admit(0);
  look_at(HEADGATE_REQUESTS_HTTP2);
  EXPECT_EQ(call(kTraces, 50, 4, 10), (Statuses{{"OK", 50}}));
  EXPECT_EQ(traces_->counters().admitted_guarded, 50U);
  look_at(HEADGATE_REQUESTS_HTTP2 | HEADGATE_REQUESTS_REFUSE);
  EXPECT_EQ(call(kTraces, 50, 4, 10), (Statuses{{"ResourceExhausted", 50}}));
  look_at(HEADGATE_REQUESTS_HTTP1 | HEADGATE_REQUESTS_REFUSE);
  EXPECT_EQ(call(kTraces, 50, 4, 10), (Statuses{{"OK", 50}}));
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_PROTOCOL), 1U) << "the connection";
}

TEST_F(Grpc, AnswersEndWhatIsInFlightAndAreTimed) {
  EXPECT_EQ(call(kTraces, 2000, 16, 1000), (Statuses{{"OK", 2000}}));
  const auto ended = [&] {
    const headgate_counters now = traces_->counters();
    return now.responses + now.closed;
  };
  ASSERT_TRUE(lab::eventually([&] { return ended() == 2000; })) << ended();
  const headgate_counters counted = traces_->counters();
  EXPECT_LE(counted.closed, 20U) << "not followed, because 64 others came and went meanwhile";
  EXPECT_EQ(traces_->state().in_flight, 0U);
  const double mean_s =
      static_cast<double>(counted.response_ns) * 1e-9 / static_cast<double>(counted.responses);
  EXPECT_GT(mean_s, 1e-6);
  EXPECT_LT(mean_s, 1);
  const headgate_life_histogram& lives = lab_->maps->lives(traces_->slot());
  EXPECT_EQ(std::accumulate(std::begin(lives.counts), std::end(lives.counts), 0U),
            counted.responses);
}

TEST_F(Grpc, RefusedCallsAreNotInFlight) {
  admit(0);
  EXPECT_EQ(call(kTraces, 200, 8, 1000), (Statuses{{"ResourceExhausted", 200}}));
  EXPECT_EQ(traces_->counters().responses, 0U);
  EXPECT_EQ(traces_->state().in_flight, 0U);
}

/// What is refused its server drops: it is live no more. Without an agent nothing ends by age.
TEST_F(Grpc, WhatIsRefusedIsNotLive) {
  for (const double share : {1.0, .5, 0.0}) {
    admit(share);
    const headgate_counters before = traces_->counters();
    const headgate_counters port_before = port_->counters();
    const std::int64_t aged_before = aged_bytes();
    EXPECT_EQ(call(kTraces, 2000, 8, 20'000).size(), share == .5 ? 2U : 1U);
    const headgate_counters after = traces_->counters();
    const auto admitted = static_cast<std::int64_t>(after.admitted - before.admitted) * 20'005;
    const auto received =
        static_cast<std::int64_t>(port_->counters().payload_bytes - port_before.payload_bytes);
    const std::int64_t aged = aged_bytes() - aged_before;
    EXPECT_GT(received, 2000 * 20'000);
    EXPECT_GE(aged, admitted) << share;
    EXPECT_LE(aged, admitted + received / 50) << share;
  }
}

/// A client that holds four calls of which 10 kB each have come, and then does something else.
class GrpcHeld : public Grpc {
 protected:
  void hold(double share) {
    admit(share);
    const std::string address = net_.at_server().ipv4;
    client_ = std::make_unique<Child>(net_.client, elsewhere_, [&] {
      ::execl("/usr/bin/python3", "python3", "-c", kScript, address.c_str(), kTraces, nullptr);
    });
    ASSERT_EQ(client_->read(5), "held\n");
    ASSERT_TRUE(lab::eventually([&] { return traces_->counters().offered == 4; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  void then(const std::string& what) {
    client_->write(what + "\n");
    ASSERT_EQ(client_->read(5), "done\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  static constexpr std::int64_t kHeld = 4 * 10'005;

 private:
  static constexpr const char* kScript = R"(
import select, socket, struct, sys
path = sys.argv[2].encode()
def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
def head(stream, flags=4, path=path):
    block = b"\x83\x86\x04" + bytes([len(path)]) + path + b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers"
    return frame(1, flags, stream, block)
server = socket.create_connection((sys.argv[1], 4317))
server.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
server.recv(4096)
server.sendall(frame(4, 1, 0))
for stream in 1, 3, 5, 7:
    server.sendall(head(stream) + frame(0, 0, stream, b"\0" + struct.pack(">I", 20000)))
    server.sendall(frame(0, 0, stream, b"x" * 10000))
print("held", flush=True)
def answers(seconds):
    while select.select([server], [], [], seconds)[0] and server.recv(1 << 16):
        pass
for what in sys.stdin:
    what = what.strip()
    if what == "announce":
        server.sendall(head(9) + frame(0, 0, 9, b"\0\x7f\xff\xff\xf0x"))
    elif what == "begin":
        server.sendall(head(11) + frame(0, 0, 11, b"\0\x00\x0f\xff\xf0x"))
        server.sendall(struct.pack(">I", 16000)[1:] + b"\0\0" + struct.pack(">I", 11) + b"y")
    elif what == "late":
        server.sendall(b"".join(head(2001 + 2 * i, 4, b"/x/y") for i in range(64)))
        answers(.3)
        server.sendall(b"".join(frame(0, 0, 2001 + 2 * i, b"\0\0\0\0\5") for i in range(64)))
    answers(.3)
    print("done", flush=True)
)";
  lab::Cgroup elsewhere_{"grpc-client"};
  std::unique_ptr<Child> client_;
};

TEST_F(GrpcHeld, WhatIsAnnouncedTakesNothingAway) {
  hold(1);
  admit(0);
  const std::int64_t before = aged_bytes();
  EXPECT_GE(before, kHeld);
  for (const char* what : {"announce", "begin"}) {  // refused; little of it comes
    then(what);
    EXPECT_GE(aged_bytes(), before) << what;
  }
  EXPECT_EQ(traces_->counters().answered, 2U);
}

TEST_F(GrpcHeld, MoreOfARefusedCallIsNotLive) {
  hold(0);
  EXPECT_EQ(traces_->counters().answered, 4U);
  EXPECT_GE(aged_bytes(), 0);
  EXPECT_LE(aged_bytes(), 1500) << "heads only";
}

TEST_F(GrpcHeld, WhatWasAnsweredBeforeItsDataCameIsNotInFlight) {
  hold(1);
  then("late");
  EXPECT_EQ(rest_->state().in_flight, 0U);
}

TEST_F(Grpc, WhatAServerHasAndDoesNotAnswerIsInFlightUntilItsConnectionEnds) {
  const lab::Cgroup elsewhere("grpc-client");
  const std::string address = server_address();
  auto client = std::make_unique<Child>(net_.client, elsewhere, [&] {
    ::execl(HEADGATE_GRPC_PEER, "grpc_peer", "call", address.c_str(), kTraces, "1000000", "8",
            "1000", nullptr);
  });
  ASSERT_TRUE(lab::eventually([&] { return traces_->counters().responses > 100; }));
  server_->signal(SIGSTOP);
  // Each of the eight callers waits for an answer.
  ASSERT_TRUE(lab::eventually([&] { return traces_->state().in_flight == 8; }))
      << traces_->state().in_flight;
  client.reset();  // killed
  server_->signal(SIGCONT);
  EXPECT_TRUE(lab::eventually([&] { return traces_->state().in_flight == 0; }))
      << traces_->state().in_flight;
  EXPECT_TRUE(lab::eventually([&] {
    const headgate_counters now = traces_->counters();
    return now.admitted == now.responses + now.closed;
  })) << "what was taken in has ended";
}

TEST_F(Grpc, CallsThatTheirClientGivesUpAreInFlightNoMore) {
  HEADGATE_REQUIRES(std::system("/usr/bin/python3 -c 'import grpc' 2>/dev/null") == 0
                        ? ""
                        : "needs the Debian package python3-grpcio");
  const lab::Cgroup elsewhere("grpc-client");
  const std::string script = R"(
import grpc, sys
call = grpc.insecure_channel(sys.argv[1]).unary_unary(sys.argv[2])
call(b"x" * 100, timeout=20)
print("ready", flush=True)
sys.stdin.readline()
try:
    call(b"x" * 100, timeout=1)
except grpc.RpcError as error:
    print(error.code().name, flush=True)
sys.stdin.readline()
)";
  const std::string address = server_address();
  Child client(net_.client, elsewhere, [&] {
    ::execl("/usr/bin/python3", "python3", "-c", script.c_str(), address.c_str(), kTraces, nullptr);
  });
  ASSERT_EQ(client.read(6), "ready\n");
  server_->signal(SIGSTOP);
  client.write("\n");
  ASSERT_TRUE(lab::eventually([&] { return traces_->state().in_flight == 1; }));
  ASSERT_EQ(client.read(18), "DEADLINE_EXCEEDED\n");
  EXPECT_TRUE(lab::eventually([&] { return traces_->state().in_flight == 0; }))
      << "the server still sleeps";
  EXPECT_EQ(traces_->counters().closed, 1U);
  server_->signal(SIGCONT);
}

TEST_F(Grpc, E12OwnLimitOfTheServerIsNotCountedAsOurs) {
  EXPECT_EQ(call(kTraces, 3, 1, kServerLimit_bytes + 1), (Statuses{{"ResourceExhausted", 3}}));
  const headgate_counters counted = traces_->counters();
  EXPECT_EQ(counted.answered, 0U);
  EXPECT_EQ(counted.admitted, 3U);
}

/// Sends one connection after the other to a server that says what it got.
class Bytes : public Requests {
 protected:
  void SetUp() override {
    Requests::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    for (std::size_t i = 0; i < http2::kRouted; ++i) {
      add_method(http2::paths()[i], *traces_, HEADGATE_ROUTE_UNARY);
    }
  }
  void start_server() override {
    sink_ = std::make_unique<Child>(net_.server, cgroup_, [] { serve_sink(); });
    ASSERT_EQ(sink_->read(6), "ready\n");
  }
  /// What came out of the server's socket.
  std::string through(const std::string& sent, const std::vector<std::size_t>& cuts) {
    net_.client.run([&] {
      const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int one = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(kPort);
      ::inet_pton(AF_INET, net_.at_server().ipv4.c_str(), &to.sin_addr);
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
        throw SetupError("connect");
      }
      std::size_t from = 0;
      for (std::size_t i = 0; i <= cuts.size(); ++i) {
        const std::size_t end = i < cuts.size() ? cuts[i] : sent.size();
        while (from < end) {
          const ssize_t put = ::send(fd.get(), sent.data() + from, end - from, MSG_NOSIGNAL);
          if (put <= 0) {
            throw SetupError("send");
          }
          from += static_cast<std::size_t>(put);
        }
      }
      ::shutdown(fd.get(), SHUT_WR);
      char byte = 0;
      (void)::recv(fd.get(), &byte, 1, 0);  // the server has read all, and closes
    });
    std::uint32_t bytes = 0;
    const std::string head = sink_->read(sizeof(bytes));
    std::memcpy(&bytes, head.data(), std::min(head.size(), sizeof(bytes)));
    return sink_->read(bytes);
  }

 private:
  static void write_all(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t put = ::write(STDOUT_FILENO, at, bytes);
      if (put <= 0) {
        ::_exit(1);
      }
      at += put;
      bytes -= static_cast<std::size_t>(put);
    }
  }
  /// In the child: for each connection the number of its bytes, and they.
  [[noreturn]] static void serve_sink() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(kPort);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
        ::listen(listener, 16) != 0) {
      ::_exit(1);
    }
    write_all("ready\n", 6);
    for (;;) {
      const int fd = ::accept(listener, nullptr, nullptr);
      std::string all;
      std::array<char, 65536> part{};
      for (ssize_t got = 0; (got = ::read(fd, part.data(), part.size())) > 0;) {
        all.append(part.data(), static_cast<std::size_t>(got));
      }
      const auto bytes = static_cast<std::uint32_t>(all.size());
      ::close(fd);  // before the pipe is full: the client waits for it
      write_all(&bytes, sizeof(bytes));
      write_all(all.data(), all.size());
    }
  }
  std::unique_ptr<Child> sink_;
};

/// Connections by chance, in packets by chance.
TEST_F(Bytes, NothingIsChangedWhileNothingIsRefused) {
  admit(1);
  std::uint64_t requests = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    http2::Random random(seed);
    http2::Encoder encoder(random);
    const unsigned count = 1 + http2::below(random, 20);
    const std::string sent =
        std::string(http2::kPreface) + http2::make_connection(random, encoder, count).octets;
    ASSERT_EQ(through(sent, http2::some_cuts(random, sent.size())), sent) << "seed " << seed;
    requests += count;
  }
  EXPECT_EQ(traces_->counters().offered + rest_->counters().offered, requests);
  EXPECT_EQ(port_->counters().recognized, 60U);
}

TEST_F(Bytes, OnlyFourOctetsOfARefusedMessageAreChanged) {
  admit(0);
  std::uint64_t refused = 0;
  std::uint64_t messages = 0;
  for (std::uint64_t seed = 101; seed <= 160; ++seed) {
    SCOPED_TRACE(seed);
    http2::Random random(seed);
    http2::Encoder encoder(random);
    const http2::Connection connection =
        http2::make_connection(random, encoder, 1 + http2::below(random, 20));
    const std::string sent = std::string(http2::kPreface) + connection.octets;
    std::string came = through(sent, http2::some_cuts(random, sent.size()));
    ASSERT_EQ(came.size(), sent.size());
    for (const auto& [stream, message] : connection.messages) {
      const std::size_t at = http2::kPreface.size() + message.end - 4;
      if (came.substr(at, 4) == "\xff\xff\xff\xff") {
        came.replace(at, 4, sent, at, 4);
        ++refused;
      }
      ++messages;
    }
    ASSERT_EQ(came, sent) << "beside the lengths";
  }
  EXPECT_EQ(traces_->counters().answered, refused);
  EXPECT_EQ(rest_->counters().answered, 0U);
  EXPECT_GT(refused, messages / 5);
}

TEST_F(Bytes, WhatIsNoHttp2PassesAndIsCounted) {
  admit(0);
  const std::string preface(http2::kPreface);
  const std::string bad = preface + http2::settings() +
                          http2::frame(HEADGATE_HTTP2_PING, 0, 1, "12345678") +
                          http2::headers(1, "\x84") + http2::unary(1, 50);
  EXPECT_EQ(through(bad, {30, 31}), bad);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_FRAME), 1U);
  const std::string no_settings = preface + http2::headers(1, "\x84") + http2::unary(1, 50);
  EXPECT_EQ(through(no_settings, {1, 2, 24}), no_settings);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_PREFACE), 1U);
  EXPECT_EQ(port_->counters().recognized, 0U);
}

/// More steps than one packet may take: a packet of 64 KB, which TCP makes when its window is open.
TEST_F(Bytes, FramesThatAreTooManyForOnePacketAreReadNoMore) {
  std::string open = std::string(http2::kPreface) + http2::settings();
  for (int i = 0; i < 100; ++i) {
    open += http2::frame(0x42, 0, 0, std::string(16'000, 'x'));
  }
  std::string tiny;
  for (int i = 0; i < 60'000; ++i) {
    tiny += http2::frame(0x42, 0, 0, "x");
  }
  EXPECT_EQ(through(open + tiny, {open.size()}), open + tiny);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_BUDGET), 1U);
}

}  // namespace
}  // namespace headgate
