// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/status.h"

#include <ostream>

#include "agent/cli/state_view.h"
#include "agent/web/control_socket.h"

namespace headgate {

int run_status(const StatusOptions& options, std::ostream& out, std::ostream& err) {
  const auto state = ControlClient(options.socket_path).state();
  if (!state) {
    err << "headgate status: " << state.error().message << '\n';
    return kExitFailure;
  }
  if (options.json) {
    out << *state << '\n';
    return kExitOk;
  }
  const auto view = cli::parse_state(*state);
  if (!view) {
    err << "headgate status: " << view.error().message << '\n';
    return kExitFailure;
  }
  out << cli::render(*view, 0, false);
  return kExitOk;
}

}  // namespace headgate
