// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/version.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "headgate/bpf_abi.h"

namespace headgate {

int run_version(const VersionOptions& options, const BuildInfo& build, std::ostream& out) {
  if (options.json) {
    const nlohmann::ordered_json object{{"schema", 1},
                                        {"version", build.version},
                                        {"revision", build.revision},
                                        {"compiler", build.compiler},
                                        {"abi_version", HEADGATE_ABI_VERSION}};
    out << object.dump() << '\n';
  } else {
    out << "headgate " << build.version << " (revision " << build.revision << ", " << build.compiler
        << ", kernel ABI " << HEADGATE_ABI_VERSION << ")\n";
  }
  return kExitOk;
}

}  // namespace headgate
