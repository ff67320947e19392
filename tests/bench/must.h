// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "headgate/result.h"

/// A benchmark that cannot go on says why and ends.
namespace headgate {

[[noreturn]] inline void die(const std::string& what) {
  (void)std::fprintf(stderr, "%s: %s\n", ::program_invocation_short_name, what.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) {
    die(result.error().message);
  }
  return std::move(*result);
}

/// Status for main(): that of `bench`, or 1 with the reason where something is `missing` or fails.
inline int run_bench(const std::string& missing, const std::function<int()>& bench) {
  try {
    if (!missing.empty()) {
      die(missing);
    }
    return bench();
  } catch (const std::exception& error) {
    die(error.what());
  }
}

}  // namespace headgate
