// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace headgate::lab {

enum class ServerMode : std::uint8_t {
  kEcho,   ///< sends back what comes, closes when the client does
  kClose,  ///< closes at once
  kHold,   ///< never reads, never closes: a client that leaves makes a CLOSE_WAIT
  kSay,    ///< reads all, sends back what follows a '>' in what it has read at once
};

struct ServerOptions {
  std::string address = "::";  ///< "::" takes IPv4 too unless ipv6_only
  std::uint16_t port = 0;      ///< 0 = any; then Server::port()
  bool ipv6_only = false;
  bool udp = false;  ///< an unconnected socket that counts datagrams
  ServerMode mode = ServerMode::kEcho;
  int backlog = 4096;
  unsigned uid = 0;      ///< of a process of its own: whose it is
  unsigned work_us = 0;  ///< CPU time spent on what is read at once, before the answer
};

/// Shared between the server and whoever watches it, also across processes.
struct ServerCounters {
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> closed{0};
  std::atomic<std::uint64_t> received_bytes{0};
  std::atomic<std::uint64_t> datagrams{0};
  std::atomic<std::int32_t> sys_errno{0};  ///< why it could not listen
  std::atomic<std::uint32_t> port{0};      ///< in use; 0 = not listening
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Listens in the calling thread's namespace and serves until `stop_fd` is readable or hung up.
/// False = it could not listen, see `counters.sys_errno`.
bool serve(const ServerOptions& options, ServerCounters& counters, int stop_fd);

}  // namespace headgate::lab
