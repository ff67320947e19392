// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/clock.h"

#include <signal.h>
#include <time.h>

#include <cerrno>

namespace headgate::demo {
namespace {

volatile sig_atomic_t g_stop = 0;

}  // namespace

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void request_stop() { g_stop = 1; }
bool stop_requested() { return g_stop != 0; }
tl::unexpected<Error> interrupted() { return fail("interrupted"); }

void sleep_until(std::int64_t at_ns) {
  const timespec when{static_cast<time_t>(at_ns / 1'000'000'000),
                      static_cast<long>(at_ns % 1'000'000'000)};
  while (!stop_requested() &&
         clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

}  // namespace headgate::demo
