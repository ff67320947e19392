// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string_view>

#include "agent/cli/options.h"

namespace headgate {

/// What was built, from what, by what: stamped by the build.
struct BuildInfo {
  std::string_view version;
  std::string_view revision;
  std::string_view compiler;
};

/// `headgate version`.
int run_version(const VersionOptions& options, const BuildInfo& build, std::ostream& out);

}  // namespace headgate
