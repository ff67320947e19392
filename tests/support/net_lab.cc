// SPDX-License-Identifier: Apache-2.0
#include "tests/support/net_lab.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>

namespace headgate::lab {
namespace {

[[noreturn]] void fail_setup(const std::string& what) {
  throw SetupError(what + ": " + std::strerror(errno));
}

// Runs on a thread of its own, so that the caller's namespaces never change.
void on_thread(const std::function<void()>& work) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

UniqueFd make_netns() {
  UniqueFd made;
  on_thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      fail_setup("unshare(CLONE_NEWNET)");
    }
    // The file keeps the namespace after this thread, its first inhabitant, has gone.
    made.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!made) {
      fail_setup("/proc/thread-self/ns/net");
    }
  });
  return made;
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");  // NOLINT: no thread of ours sets the environment
  std::istringstream directories(path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
  std::string directory;
  while (std::getline(directories, directory, ':')) {
    if (::access((directory + "/" + program).c_str(), X_OK) == 0) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> all;
  for (std::string word; words >> word;) {
    all.push_back(word);
  }
  return all;
}

std::string find_missing() {
  if (::geteuid() != 0) {
    return "needs root";
  }
  if (!in_path("ip")) {
    return "needs ip (package iproute2)";
  }
  try {
    const Namespace a;
    const Namespace b;
    const Wire wire(a, b);
  } catch (const SetupError& e) {
    return "network namespaces do not work here: " + std::string(e.what());
  }
  return "";
}

unsigned next_number() {
  static std::atomic<unsigned> last{0};
  return ++last;
}

}  // namespace

std::string missing_for_kernel_tests() {
  static const std::string kMissing = find_missing();
  return kMissing;
}

std::string missing_for_dnat() {
  return in_path("nft") || in_path("iptables") ? "" : "needs nft (package nftables) or iptables";
}

bool kernel_tests_required() {
  const char* value = std::getenv("HEADGATE_REQUIRE_KERNEL");  // NOLINT: see above
  return value != nullptr && std::string(value) == "1";
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

Namespace::Namespace() : fd_(make_netns()) {
  // No duplicate address detection, also on what is made later: addresses are usable at once.
  for (const char* scope : {"all", "default"}) {
    sysctl(std::string("net.ipv6.conf.") + scope + ".accept_dad", "0");
    sysctl(std::string("net.ipv6.conf.") + scope + ".dad_transmits", "0");
  }
  ip("link set lo up");
}

Namespace::Namespace(Host /*host*/)
    : fd_(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) {  // NOLINT: POSIX
  if (!fd_) {
    fail_setup("open the host's network namespace");
  }
}

std::uint32_t Namespace::inode() const {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) {
    fail_setup("fstat of a network namespace");
  }
  return static_cast<std::uint32_t>(status.st_ino);
}

std::string Namespace::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd());
}

void Namespace::run(const std::function<void()>& work) const {
  on_thread([&] {
    if (::setns(fd(), CLONE_NEWNET) != 0) {
      fail_setup("setns");
    }
    work();
  });
}

std::string Namespace::command(const std::vector<std::string>& argv,
                               const std::string& input) const {
  std::string output;
  run([&] { output = run_command(argv, input); });
  return output;
}

void Namespace::ip(const std::string& arguments) const {
  std::vector<std::string> argv = split(arguments);
  argv.insert(argv.begin(), "ip");
  command(argv);
}

void Namespace::ip_batch(const std::string& lines) const { command({"ip", "-batch", "-"}, lines); }

void Namespace::sysctl(const std::string& name, const std::string& value) const {
  std::string path = "/proc/sys/" + name;
  for (std::size_t i = std::strlen("/proc/sys/"); i < path.size(); ++i) {
    if (path[i] == '.') {
      path[i] = '/';
    }
  }
  run([&] {
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file ||
        ::write(file.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
      fail_setup(path + " = " + value);
    }
  });
}

std::vector<std::string> Namespace::add_addresses(const std::string& device,
                                                  const std::string& first, unsigned count) const {
  std::array<std::uint8_t, 16> bytes{};
  const bool ipv4 = ::inet_pton(AF_INET, first.c_str(), bytes.data()) == 1;
  if (!ipv4 && ::inet_pton(AF_INET6, first.c_str(), bytes.data()) != 1) {
    throw SetupError(first + " is no address");
  }
  const std::size_t length = ipv4 ? 4 : 16;
  std::vector<std::string> added;
  std::string lines;
  for (unsigned i = 0; i < count; ++i) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(ipv4 ? AF_INET : AF_INET6, bytes.data(), text.data(), text.size());
    added.emplace_back(text.data());
    lines += "addr add " + added.back() + (ipv4 ? "/32" : "/128") + " dev " + device +
             (ipv4 ? "\n" : " nodad\n");
    for (std::size_t at = length; at-- > 0 && ++bytes[at] == 0;) {
    }
  }
  ip_batch(lines);
  return added;
}

Wire::Wire(const Namespace& a, const Namespace& b) {
  const std::string number = std::to_string(next_number());
  a_ = {"wire" + number, "10.66." + number + ".1", "fd66:" + number + "::1"};
  b_ = {"wire" + number, "10.66." + number + ".2", "fd66:" + number + "::2"};
  a.ip("link add " + a_.device + " type veth peer name " + b_.device + " netns " + b.path());
  for (const auto& [netns, end] : {std::pair{&a, &a_}, std::pair{&b, &b_}}) {
    netns->ip_batch("link set " + end->device + " up\naddr add " + end->ipv4 + "/24 dev " +
                    end->device + "\naddr add " + end->ipv6 + "/64 dev " + end->device +
                    " nodad\n");
  }
}

Node::Node() {
  netns_.sysctl("net.ipv4.ip_forward", "1");
  netns_.sysctl("net.ipv6.conf.all.forwarding", "1");
  // The way out. Nothing is behind it, but a service address needs a route before it is rewritten.
  // A veth pair with both ends here: dummy interfaces are not in every kernel.
  netns_.ip_batch(
      "link add uplink type veth peer name beyond\nlink set beyond up\nlink set uplink up\n"
      "addr add " +
      std::string(kIpv4) + "/24 dev uplink\naddr add " + kIpv6 +
      "/64 dev uplink nodad\nroute add 0.0.0.0/0 dev uplink\nroute add ::/0 dev uplink\n");
}

Node::Pod& Node::add_pod() {
  const std::string number = std::to_string(pods_.size() + 1);
  return attach("10.67." + number + ".1", "fd67:" + number + "::1", "10.67." + number + ".2",
                "fd67:" + number + "::2", false);
}

Node::Pod& Node::add_bridged_pod() {
  if (!has_bridge_) {
    netns_.ip_batch(
        "link add br0 type bridge stp_state 0 forward_delay 0\nlink set br0 up\n"
        "addr add 10.68.0.1/24 dev br0\naddr add fd68::1/64 dev br0 nodad\n");
    has_bridge_ = true;
  }
  const std::string number = std::to_string(pods_.size() + 2);
  return attach("10.68.0.1", "fd68::1", "10.68.0." + number, "fd68::" + number, true);
}

Node::Pod& Node::attach(const std::string& gateway_ipv4, const std::string& gateway_ipv6,
                        const std::string& ipv4, const std::string& ipv6, bool bridged) {
  auto pod = std::make_unique<Pod>();
  pod->ipv4 = ipv4;
  pod->ipv6 = ipv6;
  pod->gateway_ipv4 = gateway_ipv4;
  pod->gateway_ipv6 = gateway_ipv6;
  pod->node_device = "pod" + std::to_string(pods_.size() + 1);
  const std::string& device = pod->node_device;
  netns_.ip("link add " + device + " type veth peer name eth0 netns " + pod->netns.path());
  netns_.ip_batch(bridged ? "link set " + device + " master br0 up\n"
                          : "link set " + device + " up\naddr add " + gateway_ipv4 + "/24 dev " +
                                device + "\naddr add " + gateway_ipv6 + "/64 dev " + device +
                                " nodad\n");
  pod->netns.ip_batch("link set eth0 up\naddr add " + ipv4 + "/24 dev eth0\naddr add " + ipv6 +
                      "/64 dev eth0 nodad\nroute add 0.0.0.0/0 via " + gateway_ipv4 +
                      "\nroute add ::/0 via " + gateway_ipv6 + "\n");
  pods_.push_back(std::move(pod));
  return *pods_.back();
}

void Node::dnat(const std::string& vip, std::uint16_t port, const std::string& pod,
                std::uint16_t pod_port) const {
  const bool ipv6 = vip.find(':') != std::string::npos;
  const std::string to = (ipv6 ? "[" + pod + "]" : pod) + ":" + std::to_string(pod_port);
  if (in_path("nft")) {
    const std::string family = ipv6 ? "ip6" : "ip";
    const std::string rule =
        family + " daddr " + vip + " tcp dport " + std::to_string(port) + " dnat to " + to + "\n";
    const std::string table = "add table " + family + " lab\n";
    const std::string chain = "add chain " + family + " lab ";
    netns_.command({"nft", "-f", "-"},
                   table + chain + "pre { type nat hook prerouting priority -100; }\n" + chain +
                       "out { type nat hook output priority -100; }\nadd rule " + family +
                       " lab pre " + rule + "add rule " + family + " lab out " + rule);
    return;
  }
  for (const char* chain : {"PREROUTING", "OUTPUT"}) {
    netns_.command({ipv6 ? "ip6tables" : "iptables", "-t", "nat", "-A", chain, "-d", vip, "-p",
                    "tcp", "--dport", std::to_string(port), "-j", "DNAT", "--to-destination", to});
  }
}

void Node::masquerade(const std::string& pod) const {
  if (in_path("nft")) {
    netns_.command({"nft", "-f", "-"},
                   "add table ip lab\n"
                   "add chain ip lab post { type nat hook postrouting priority 100; }\n"
                   "add rule ip lab post ip daddr " +
                       pod + " meta l4proto tcp masquerade to :20000-29999\n");
    return;
  }
  netns_.command({"iptables", "-t", "nat", "-A", "POSTROUTING", "-d", pod, "-p", "tcp", "-j",
                  "MASQUERADE", "--to-ports", "20000-29999"});
}

}  // namespace headgate::lab
