// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/record.h"

#include <signal.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <ostream>
#include <thread>

#include <fmt/format.h>

#include "agent/cli/failure.h"
#include "agent/config/schema.h"
#include "agent/web/control_socket.h"

namespace headgate {
namespace {

constexpr std::chrono::milliseconds kFetchEvery{500};

volatile std::sig_atomic_t interrupted = 0;  // NOLINT: a signal handler can set nothing else

void on_signal(int /*signal*/) { interrupted = 1; }

}  // namespace

int run_record(const RecordOptions& options, std::ostream& out, std::ostream& err) {
  using Clock = std::chrono::steady_clock;
  const auto failed = [&](const std::string& message) {
    return cli::failed("record", message, false, out, err);
  };
  const ControlClient agent(options.socket_path);
  // Asked before the file is made: a wrong name must not cost a file of that name.
  auto part = agent.record(options.target, 0);
  if (!part) {
    return failed(part.error().message);
  }
  std::ofstream file;
  if (!options.output.empty()) {
    file.open(options.output, std::ios::binary | std::ios::trunc);
    if (!file) {
      return failed(fmt::format("cannot write {}", printable(options.output)));
    }
  }
  std::ostream& to = options.output.empty() ? out : file;
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);

  to << part->head;
  std::uint64_t ticks = 0;
  std::uint64_t missed = 0;
  const auto begin = Clock::now();
  std::optional<std::string> problem;
  while (true) {
    for (const std::string& line : part->lines) {
      to << line;
      ++ticks;
    }
    missed += part->missed;
    to.flush();
    if (!to) {
      problem = options.output.empty() ? "standard output was closed"
                                       : fmt::format("cannot write {}", printable(options.output));
      break;
    }
    const double passed_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (interrupted != 0 || (options.duration_s > 0 && passed_s >= options.duration_s)) {
      break;
    }
    std::this_thread::sleep_for(kFetchEvery);
    const std::uint64_t from = part->next;
    part = agent.record(options.target, from);
    if (!part) {
      problem = part.error().message;
      break;
    }
    if (part->next < from) {  // another agent, or the target was opened anew: its count begins anew
      problem = "the target or the agent began anew: what follows would be another trace";
      break;
    }
  }
  err << fmt::format("headgate record: {} ticks{}\n", ticks,
                     missed > 0 ? fmt::format(", {} missed", missed) : std::string());
  if (problem) {
    return failed(*problem);
  }
  return kExitOk;
}

}  // namespace headgate
