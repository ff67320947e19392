// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "agent/targets/api_server.h"

namespace headgate::test {

/// Of node n1, with waits of milliseconds that are the same each time.
inline ApiServerOptions quick_api_options(const std::string& url) {
  ApiServerOptions out;
  out.url = url;
  out.node_name = "n1";
  out.backoff_first = std::chrono::milliseconds(4);
  out.backoff_most = std::chrono::milliseconds(20);
  out.chance = [] { return 0.5; };
  return out;
}

}  // namespace headgate::test
