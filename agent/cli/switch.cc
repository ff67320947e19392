// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/switch.h"

#include <ostream>

#include "agent/cli/failure.h"
#include "agent/web/control_socket.h"

namespace headgate {
namespace {

void print_done(const SwitchOptions& options, bool by_agent, std::ostream& out) {
  if (options.json) {
    out << "{\"schema\":1,\"kill_switch\":" << (options.off ? "true" : "false")
        << ",\"agent_running\":" << (by_agent ? "true" : "false") << "}\n";
    return;
  }
  out << (options.off ? "off: everything is admitted until `headgate on`"
                      : "on: the gate acts on its decisions again")
      << (by_agent ? "\n" : " (no agent answered; the kernel's own switch was set)\n");
}

}  // namespace

int run_switch(const SwitchOptions& options, std::ostream& out, std::ostream& err,
               const PinnedSwitch& pinned) {
  const char* verb = options.off ? "off" : "on";
  const ControlClient client(options.socket_path);
  const auto told = options.off ? client.off() : client.on();
  if (told) {
    print_done(options, true, out);
    return kExitOk;
  }
  if (!pinned) {
    return cli::failed(verb, told.error().message, options.json, out, err);
  }
  // Nobody listens, or the agent is hung or busy: the cell is the kernel's, and needs no agent.
  if (const auto stored = pinned(options.pin_root, options.off); !stored) {
    return cli::failed(verb,
                       told.error().message + "; and without an agent: " + stored.error().message,
                       options.json, out, err);
  }
  print_done(options, false, out);
  return kExitOk;
}

}  // namespace headgate
