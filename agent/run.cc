// SPDX-License-Identifier: Apache-2.0
#include "agent/run.h"

#include <signal.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <ostream>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/agent.h"
#include "agent/base/log.h"
#include "agent/cgroup/sampler.h"
#include "agent/cli/pods.h"
#include "agent/config/load.h"
#include "agent/strategies/registry.h"
#include "agent/version.h"
#include "agent/web/control_socket.h"
#include "agent/web/server.h"
#include "agent/web/state_json.h"
#include "agent/web_port.h"

namespace headgate {
namespace {

/// The configuration of the flags or of the file; nothing = exit 2, said on `err`.
std::optional<Config> read_config(const RunOptions& options, std::ostream& out, std::ostream& err) {
  if (!options.protect.empty() || !options.ports.empty()) {
    auto config =
        config_from_flags(options.protect, options.ports,
                          options.observe ? Mode::kObserve : Mode::kEnforce, strategies());
    if (!config) {
      err << "headgate run: " << config.error().message << "\n";
      return std::nullopt;
    }
    out << "# what these flags amount to, as a configuration file:\n" << to_yaml(*config);
    out.flush();
    return std::move(*config);
  }
  LoadedConfig loaded = load_config_file(options.config_path, strategies());
  for (const Problem& problem : loaded.problems) {
    err << to_string(problem) << "\n";
  }
  if (!loaded.valid()) {
    err << "headgate run: the configuration is invalid; `headgate check --config "
        << options.config_path << "` shows this without starting\n";
    return std::nullopt;
  }
  return std::move(loaded.config);
}

/// The signals that the loop reads from a signalfd must be blocked before any thread starts.
void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  (void)::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

int run_agent(const RunOptions& options, std::ostream& out, std::ostream& err) {
  auto config = read_config(options, out, err);
  if (!config) {
    return kExitUsage;
  }
  if (options.config_check) {
    return kExitOk;
  }
  block_signals();
  log::setup(options.log_level, options.log_format);

  const std::uint64_t open_files = raise_open_file_limit();
  if (open_files < config->targets.size() * kOpenFilesPerTarget + 64) {
    log::warn("the limit of open files is low for so many targets: raise LimitNOFILE",
              {{"limit", open_files}, {"targets", config->targets.size()}});
  }

  const bool from_flags = !options.protect.empty();
  AgentOptions agent_options;
  agent_options.config = std::move(*config);
  agent_options.config_file = from_flags ? "" : options.config_path;
  agent_options.observe_only = options.observe;
  agent_options.pin_root = options.pin_root;
  agent_options.cgroup_root = options.cgroup_root;
  agent_options.proc_root = options.proc_root;
  agent_options.wait_for_lock = options.wait;
  // A first look by flags leaves nothing behind.
  agent_options.purge_on_exit = options.on_exit == OnExit::kPurge || from_flags;
  agent_options.purge_unless_awaited = options.on_exit == OnExit::kHandover;
  agent_options.open_pods = [&options] { return open_pods(options.kubernetes); };
  if (options.events) {
    agent_options.open_events = [&options] { return open_events(options.kubernetes); };
  }
  std::unique_ptr<ControlServer> control;
  std::function<void()> start_control;
  agent_options.on_active = [&start_control] { start_control(); };
  auto agent = Agent::open(std::move(agent_options));
  if (!agent) {
    err << "headgate run: " << agent.error().message << "\n";
    return kExitFailure;
  }
  log::info("headgate", {{"version", kVersion}, {"revision", kRevision}});

  // Before anything is bound: what an agent in standby meets is not an error.
  const auto locked = (*agent)->try_lock();
  if (!locked) {
    err << "headgate run: " << locked.error().message << "\n";
    return kExitFailure;
  }
  if (!*locked && !options.wait) {
    err << "headgate run: another headgate agent holds " << options.pin_root
        << ": stop it first, or run without --no-wait to stand by\n";
    return kExitFailure;
  }

  // Both serve from threads of their own and end before the agent does.
  std::unique_ptr<WebServer> web;
  std::unique_ptr<AwaitedWebServer> awaited_web;
  if (!options.web_listen_address.empty()) {
    WebServer::Options web_options;
    web_options.listen_address = options.web_listen_address;
    web_options.effective_config = [&agent] { return (*agent)->effective_config(); };
    web_options.reload = [&agent] { return (*agent)->request_reload(); };
    const auto start = [&agent, web_options] { return WebServer::start(**agent, web_options); };
    auto started = start();
    if (started) {
      web = std::move(*started);
      log::info("web server", {{"port", web->port()}});
    } else if (started.error().sys_errno == EADDRINUSE && !*locked) {
      log::info("standby: the web port is taken until the other agent ends",
                {{"address", options.web_listen_address}});
      awaited_web = std::make_unique<AwaitedWebServer>(start);
    } else {
      err << "headgate run: " << started.error().message
          << " (does another headgate run? --web.listen-address takes another one, or none)\n";
      return kExitFailure;
    }
  }
  ControlServer::Handlers handlers;
  handlers.state = [&agent]() -> Result<std::string> {
    const SnapshotPtr snapshot = (*agent)->snapshot();
    if (snapshot == nullptr) {
      return fail("the agent has not ticked yet");
    }
    return web::to_state_json(*snapshot);
  };
  handlers.config = [&agent]() -> Result<std::string> { return (*agent)->effective_config(); };
  handlers.record = [&agent](const std::string& target, std::uint64_t from) -> Result<std::string> {
    const auto part = (*agent)->record(target, from);
    if (!part) {
      return tl::unexpected<Error>(part.error());
    }
    return nlohmann::json{{"head", part->head},
                          {"lines", part->lines},
                          {"next", part->next},
                          {"missed", part->missed}}
        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  handlers.off = [&agent] { return (*agent)->set_off(true); };
  handlers.on = [&agent] { return (*agent)->set_off(false); };
  handlers.reload = [&agent] { return (*agent)->request_reload(); };
  // An agent in standby meets the socket of the active one, and gets it when it takes over.
  start_control = [&options, &control, handlers] {
    if (control != nullptr || options.socket_path.empty()) {
      return;
    }
    if (auto started = ControlServer::start(options.socket_path, handlers); started) {
      control = std::move(*started);
    } else {
      log::warn("no control socket", {{"reason", started.error().message}});
    }
  };
  start_control();

  const auto ran = (*agent)->run();
  control.reset();
  awaited_web.reset();
  web.reset();
  if (!ran) {
    log::error("stopped", {{"reason", ran.error().message}});
    return kExitFailure;
  }
  return kExitOk;
}

}  // namespace headgate
