// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "agent/cli/json_read.h"
#include "agent/cli/options.h"

namespace headgate::cli {

[[nodiscard]] inline std::string error_json(std::string_view message) {
  return to_text(Json{{"schema", 1}, {"error", message}});
}

/// A verb has failed: one line for a person on `err`; with --json also {schema, error} on `out`, so
/// that what reads it never meets an empty text.
inline int failed(std::string_view verb, std::string_view message, bool json, std::ostream& out,
                  std::ostream& err, int status = kExitFailure) {
  err << "headgate " << verb << ": " << message << '\n';
  if (json) {
    out << error_json(message) << '\n';
  }
  return status;
}

}  // namespace headgate::cli
