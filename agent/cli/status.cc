// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/status.h"

#include <ostream>

#include "agent/base/wall_clock.h"
#include "agent/cli/failure.h"
#include "agent/cli/state_view.h"
#include "agent/web/control_socket.h"

namespace headgate {

int run_status(const StatusOptions& options, std::ostream& out, std::ostream& err) {
  const auto state = ControlClient(options.socket_path).state();
  if (!state) {
    return cli::failed("status", state.error().message, options.json, out, err);
  }
  if (options.json) {
    out << *state << '\n';
    return kExitOk;
  }
  const auto view = cli::parse_state(*state, unix_now<std::chrono::milliseconds>());
  if (!view) {
    return cli::failed("status", view.error().message, options.json, out, err);
  }
  out << cli::render(*view, 0, false);
  return kExitOk;
}

}  // namespace headgate
