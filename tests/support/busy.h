// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <thread>

namespace headgate::lab {

/// Others have so much to do that a quota on the CPU is not the limit of what runs under it.
inline bool machine_is_busy() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 && load > 1.5 * std::thread::hardware_concurrency();
}

}  // namespace headgate::lab
