// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "agent/base/unique_fd.h"
#include "tests/support/server_loop.h"

/// A small laboratory for tests as root: network namespaces and the wires between them, servers,
/// a client that classifies every attempt, cgroups. Everything is undone by its destructor, also
/// after a failed assertion; nothing has a name that could stay behind, cgroups apart. A set-up
/// that fails throws SetupError, which GoogleTest reports as the failure of the test.
namespace headgate::lab {

/// First line of a test (or of SetUp) that needs root and namespaces: skips, or fails where
/// HEADGATE_REQUIRE_KERNEL=1 says that the machine has them.
#define HEADGATE_REQUIRES_ROOT_KERNEL() \
  HEADGATE_REQUIRES(::headgate::lab::missing_for_kernel_tests())

/// The same for anything else; `reason_expression` is "" where nothing is missing.
#define HEADGATE_REQUIRES(reason_expression)                       \
  do {                                                             \
    const std::string headgate_missing = (reason_expression);      \
    if (!headgate_missing.empty()) {                               \
      if (::headgate::lab::kernel_tests_required()) {              \
        FAIL() << "HEADGATE_REQUIRE_KERNEL: " << headgate_missing; \
      }                                                            \
      GTEST_SKIP() << headgate_missing;                            \
    }                                                              \
  } while (false)

/// Why tests with namespaces cannot run here; "" = they can.
[[nodiscard]] std::string missing_for_kernel_tests();
/// Why Node::dnat cannot work here (neither nft nor iptables); "" = it can.
[[nodiscard]] std::string missing_for_dnat();
[[nodiscard]] bool kernel_tests_required();

struct SetupError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs a program (found by PATH) in the calling thread's namespaces. Returns what it wrote to
/// stdout and stderr; throws SetupError with that text when it fails.
std::string run_command(const std::vector<std::string>& argv, const std::string& input = "");

/// A network namespace without a name or a process: it lives as long as this object, or as long as
/// a process or socket in it. Loopback is up, IPv6 addresses are usable at once.
class Namespace {
 public:
  Namespace();
  /// The namespace of the test process itself: the host's. Only loopback may be used there.
  struct Host {};
  explicit Namespace(Host host);
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;
  ~Namespace() = default;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint32_t inode() const;
  /// A path that any process may open while this one lives.
  [[nodiscard]] std::string path() const;

  /// Runs `work` on a thread of its own inside the namespace; what it throws comes out here. A
  /// fatal assertion inside ends only `work`: follow with HasFatalFailure() where that matters.
  void run(const std::function<void()>& work) const;
  template <class T>
  [[nodiscard]] T get(const std::function<T()>& work) const {
    T result{};
    run([&] { result = work(); });
    return result;
  }

  /// `ip ARGUMENTS...` (one string, split at spaces) inside the namespace.
  void ip(const std::string& arguments) const;
  /// Many lines for `ip -batch`: hundreds of addresses in one process.
  void ip_batch(const std::string& lines) const;
  // NOLINTNEXTLINE(modernize-use-nodiscard): what it wrote is often of no interest
  std::string command(const std::vector<std::string>& argv, const std::string& input = "") const;
  /// "net.ipv4.tcp_syncookies", "2"
  void sysctl(const std::string& name, const std::string& value) const;
  /// `count` more addresses on `device`, counted up from `first` (IPv4 or IPv6, /32 or /128).
  // NOLINTNEXTLINE(modernize-use-nodiscard): the caller may know them
  std::vector<std::string> add_addresses(const std::string& device, const std::string& first,
                                         unsigned count) const;

 private:
  UniqueFd fd_;
};

/// A veth pair between two namespaces, with addresses on both ends: 10.66.N.1 and .2 (/24),
/// fd66:N::1 and ::2 (/64), N counted up in each process. Goes when either namespace goes.
class Wire {
 public:
  struct End {
    std::string device;
    std::string ipv4;
    std::string ipv6;
  };
  Wire(const Namespace& a, const Namespace& b);
  [[nodiscard]] const End& a() const { return a_; }
  [[nodiscard]] const End& b() const { return b_; }

 private:
  End a_;
  End b_;
};

/// A client and a server namespace on one wire: what most tests need.
struct Pair {
  Namespace client;
  Namespace server;
  Wire wire{client, server};
  [[nodiscard]] const Wire::End& at_client() const { return wire.a(); }
  [[nodiscard]] const Wire::End& at_server() const { return wire.b(); }
};

/// A node as Kubernetes makes one: a namespace that forwards, with an address of its own, and
/// namespaces around it (pods, or clients from outside: to the kernel it is the same).
class Node {
 public:
  struct Pod {
    Namespace netns;
    std::string ipv4;  ///< on eth0
    std::string ipv6;
    std::string gateway_ipv4;  ///< the node's address on that wire: what probes come from
    std::string gateway_ipv6;
    std::string node_device;  ///< the node's end of the veth pair
  };
  static constexpr const char* kIpv4 = "192.0.2.1";  ///< of the node itself (TEST-NET-1)
  static constexpr const char* kIpv6 = "2001:db8:66::1";

  Node();
  [[nodiscard]] const Namespace& netns() const { return netns_; }
  /// A veth pair and a subnet of its own, routed by the node (10.67.N.2, fd67:N::2).
  Pod& add_pod();
  /// On the node's bridge br0 (10.68.0.N, fd68::N).
  Pod& add_bridged_pod();
  /// A service address: TCP to vip:port goes to pod:pod_port, from other namespaces and the node.
  void dnat(const std::string& vip, std::uint16_t port, const std::string& pod,
            std::uint16_t pod_port) const;
  /// What goes to this IPv4 address over TCP gets the node's address and a port of 20000 to 29999.
  void masquerade(const std::string& pod) const;

 private:
  Pod& attach(const std::string& gateway_ipv4, const std::string& gateway_ipv6,
              const std::string& ipv4, const std::string& ipv6, bool bridged);
  Namespace netns_;
  bool has_bridge_ = false;
  std::vector<std::unique_ptr<Pod>> pods_;
};

/// Cgroups of one name in every tree that matters (v2; v1 cpu, cpuacct, memory where they are
/// mounted), removed at the end together with processes left in them.
class Cgroup {
 public:
  /// The name becomes headgate-lab-PID-NAME; `parent` is a path below the roots ("" = the root).
  explicit Cgroup(const std::string& name, const std::string& parent = "");
  /// Below another cgroup of the lab, with this name as it is: where the name is what is looked
  /// for.
  Cgroup(const Cgroup& parent, const std::string& name);
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup();

  /// Path below the cgroup root, as in /proc/PID/cgroup.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Directory in the v2 tree, where programs attach; "" = there is no v2 tree.
  [[nodiscard]] const std::string& v2_directory() const { return v2_directory_; }
  /// Directory that holds `controller`'s files ("cpu", "cpuacct", "memory").
  [[nodiscard]] std::string directory(const std::string& controller) const;
  [[nodiscard]] bool is_v2(const std::string& controller) const;
  [[nodiscard]] std::vector<std::string> procs_files() const;

  void limit_cpu(double cores) const;
  void limit_memory(std::uint64_t memory_bytes) const;
  /// CPU time of all that ever ran here.
  [[nodiscard]] std::chrono::nanoseconds cpu_used() const;
  void add(pid_t pid) const;

 private:
  void make(const std::string& parent);

  std::string path_;
  std::string v2_directory_;
  std::map<std::string, std::string> v1_directories_;  // by controller
  std::vector<std::string> created_;                   // in order of creation
};

/// A server in a namespace. Counters are sums over restarts; the port stays the same.
class Server {
 public:
  virtual ~Server() = default;
  /// Returns when it listens.
  virtual void start() = 0;
  /// Returns when its sockets are closed. Connections end by FIN (RST where data was unread).
  virtual void stop() = 0;

  [[nodiscard]] std::uint16_t port() const { return options_.port; }
  [[nodiscard]] std::uint64_t accepted() const { return counters_->accepted.load(); }
  [[nodiscard]] std::uint64_t open_connections() const {
    return counters_->accepted.load() - counters_->closed.load();
  }
  [[nodiscard]] std::uint64_t received_bytes() const { return counters_->received_bytes.load(); }
  [[nodiscard]] std::uint64_t datagrams() const { return counters_->datagrams.load(); }

 protected:
  explicit Server(ServerOptions options) : options_(std::move(options)) {}
  void await_listening();
  [[nodiscard]] const ServerOptions& options() const { return options_; }
  [[nodiscard]] ServerCounters& counters() { return *counters_; }
  void count_in(ServerCounters* counters) { counters_ = counters; }

 private:
  ServerOptions options_;
  ServerCounters* counters_ = nullptr;
};

/// On a thread of the test.
class ServerThread final : public Server {
 public:
  ServerThread(const Namespace& netns, ServerOptions options);
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  ~ServerThread() override;
  void start() override;
  void stop() override;

 private:
  const Namespace& netns_;
  std::unique_ptr<ServerCounters> own_counters_;
  UniqueFd stop_;
  std::thread thread_;
};

/// A process of its own (headgate_lab_server): in a cgroup before it listens, and killable. Ends
/// with the test process at the latest.
class ServerProcess final : public Server {
 public:
  ServerProcess(const Namespace& netns, ServerOptions options, const Cgroup* cgroup = nullptr);
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess() override;
  void start() override;
  void stop() override;
  /// kill -9
  void kill();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void reap();
  const Namespace& netns_;
  std::vector<std::string> procs_files_;
  UniqueFd shared_;
  UniqueFd stop_;
  pid_t pid_ = -1;
};

enum class Outcome : std::uint8_t {
  kConnected,          ///< connected, and confirmed as asked for
  kRefused,            ///< ECONNREFUSED: the SYN was answered by RST
  kResetAfterConnect,  ///< connect succeeded, then RST before the confirmation
  kTimedOut,           ///< connect got no answer within the time limit
  kUnconfirmed,        ///< connected, but the confirmation did not come within the time limit
  kOther,              ///< see Attempt::sys_errno; 0 = closed without the echo
};
[[nodiscard]] const char* to_string(Outcome outcome);

struct Attempt {
  Outcome outcome = Outcome::kOther;
  int sys_errno = 0;
  std::chrono::microseconds began{0};    ///< since the first attempt
  std::chrono::microseconds latency{0};  ///< until connected, refused, reset or given up
};

/// What proves that the server really has the connection: connect() alone does not, the SYN-ACK
/// may have been a cookie.
enum class Confirm : std::uint8_t {
  kNone,
  kEcho,       ///< eight bytes come back (ServerMode::kEcho)
  kPeerClose,  ///< the server closes (ServerMode::kClose)
};

struct ConnectOptions {
  std::uint64_t attempts = 1;
  std::string address{};
  std::uint16_t port = 0;
  unsigned parallel = 32;
  std::chrono::milliseconds timeout{2000};
  Confirm confirm = Confirm::kEcho;
  double per_second = 0;  ///< begin so many a second (open loop); 0 = as fast as can be
  std::vector<std::string> sources{};  ///< taken in turn; empty = the kernel chooses
  std::uint16_t source_port = 0;       ///< first of source_ports; 0 = the kernel chooses
  unsigned source_ports = 1;           ///< taken in turn
  bool keep_open = false;              ///< successful connections are kept in the report
  bool end_by_fin = false;       ///< and not by RST: leaves TIME_WAIT where the server closed first
  std::function<bool()> stop{};  ///< asked before each attempt; true = begin no more
};

struct ConnectReport {
  std::vector<Attempt> attempts;
  std::vector<UniqueFd> open;  ///< with keep_open
  [[nodiscard]] std::uint64_t count(Outcome outcome) const;
  /// `share` in [0, 1] of the attempts with `outcome`; 0 when there are none.
  [[nodiscard]] std::chrono::microseconds latency(Outcome outcome, double share) const;
  [[nodiscard]] std::string describe() const;  ///< for failure messages
};

/// Drives connects from one thread inside `netns`. Ends each connection by RST unless told
/// otherwise, so that no TIME_WAIT is left to disturb the next attempt.
[[nodiscard]] ConnectReport connect_many(const Namespace& netns, const ConnectOptions& options);

struct DatagramOptions {
  std::uint64_t datagrams = 1;
  std::string address{};
  std::uint16_t port = 0;
  double per_second = 20000;
  std::size_t bytes = 32;
  std::string source{};  ///< "" = the kernel chooses
};
struct DatagramReport {
  std::uint64_t sent = 0;
  std::uint64_t refused = 0;  ///< ICMP port unreachable, of which the kernel sends only a few
};
[[nodiscard]] DatagramReport send_datagrams(const Namespace& netns, const DatagramOptions& options);

/// A TCP segment out of nowhere, as from a connection that the server no longer knows.
struct Segment {
  std::string source{};
  std::string destination{};
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint8_t flags = 0;  ///< kFin | kSyn | ...
  std::uint32_t sequence = 1000;
  std::uint32_t acknowledgment = 2000;
  std::string payload{};

  static constexpr std::uint8_t kFin = 0x01;
  static constexpr std::uint8_t kSyn = 0x02;
  static constexpr std::uint8_t kRst = 0x04;
  static constexpr std::uint8_t kPsh = 0x08;
  static constexpr std::uint8_t kAck = 0x10;
};
/// Sends it from inside `netns` and returns the flags of the first segment that comes back for it;
/// 0 = none within `wait`.
[[nodiscard]] std::uint8_t send_segment(const Namespace& netns, const Segment& segment,
                                        std::chrono::milliseconds wait);

/// Asks again and again until `condition` holds; false = not within `limit`.
[[nodiscard]] bool eventually(const std::function<bool()>& condition,
                              std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace headgate::lab
