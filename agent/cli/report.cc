// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/report.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <ostream>
#include <regex>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"
#include "agent/cli/doctor.h"
#include "agent/cli/explain.h"
#include "agent/cli/failure.h"
#include "agent/cli/json_read.h"
#include "agent/web/control_socket.h"
#include "agent/web/http_server.h"
#include "agent/web/words.h"

namespace headgate {
namespace cli {

std::string mask_secrets(std::string_view text) {
  using std::regex;
  static const regex kKey(
      R"re(((?:password|passwd|secret|token|credentials?|authorization|api[-_]?key)["']?[ \t]*[:=][ \t]*)[^\r\n]+)re",
      regex::icase | regex::optimize);
  static const regex kUrl(R"re((://)[^/\s:@]+:[^/\s@]+@)re", regex::optimize);
  // Line by line: the recursion of std::regex must not grow with the file.
  std::istringstream lines{std::string(text)};
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    constexpr std::size_t kLongest = 4096;
    if (line.size() > kLongest) {
      out += line + '\n';  // a JSON of ours, which has no such keys
      continue;
    }
    line = std::regex_replace(line, kKey, "$1***");
    out += std::regex_replace(line, kUrl, "$1***@") + '\n';
  }
  return out;
}

}  // namespace cli

namespace {

constexpr std::size_t kTargetsExplained = 20;

std::string utc_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &utc);
  return text.data();
}

/// Body of GET `path` from the agent's web server; within two seconds.
Result<std::string> fetch(const std::string& listen_address, const std::string& path) {
  const auto where = web::parse_listen_address(listen_address);
  if (!where) {
    return tl::unexpected<Error>(where.error());
  }
  const std::string host = where->host.empty() ? "127.0.0.1" : where->host;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), fmt::format("{}", where->port).c_str(), &hints, &found) != 0) {
    return fail(listen_address + ": no address");
  }
  const UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout{2, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  const bool connected = fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  const int cause = errno;
  ::freeaddrinfo(found);
  if (!connected) {
    return sys_fail(cause, "connect to " + listen_address);
  }
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, host);
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return sys_fail(errno, "send to " + listen_address);
  }
  std::string answer;
  std::array<char, 16384> buffer{};
  constexpr std::size_t kMost = 64U << 20;
  while (answer.size() < kMost) {
    const ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n < 0) {
      return sys_fail(errno, "receive from " + listen_address);
    }
    if (n == 0) {
      break;
    }
    answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const auto body = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200") || body == std::string::npos) {
    return fail(listen_address + path + ": " + answer.substr(0, answer.find('\r')));
  }
  return answer.substr(body + 4);
}

/// What has gone into the directory, and what has not and why.
class Bundle {
 public:
  explicit Bundle(std::string directory) : directory_(std::move(directory)) {}

  void add(const std::string& name, std::string_view text) {
    std::ofstream file(directory_ + "/" + name, std::ios::binary);
    file << cli::mask_secrets(text);
    file.close();
    if (file) {
      files_.push_back({name, ""});
    } else {
      files_.push_back({name, "cannot be written"});
      ++unwritten_;
    }
  }
  void add(const std::string& name, const Result<std::string>& text) {
    if (text) {
      add(name, std::string_view(*text));
    } else {
      files_.push_back({name, text.error().message});
    }
  }

  struct File {
    std::string name;
    std::string missing;  ///< why it is not there; empty: it is
  };
  [[nodiscard]] const std::vector<File>& files() const { return files_; }
  [[nodiscard]] std::size_t unwritten() const { return unwritten_; }

 private:
  std::string directory_;
  std::vector<File> files_;
  std::size_t unwritten_ = 0;
};

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return fail(path + " cannot be read");
  }
  return text.str();
}

std::vector<std::string> names_of_targets(const Result<std::string>& state) {
  std::vector<std::string> names;
  const cli::Json parsed = state ? cli::parse_json(*state) : cli::Json();
  for (const cli::Json& target : cli::list_of(parsed, "targets")) {
    const std::string path = cli::text_of(target, "cgroup_path");
    if (!path.empty() && names.size() < kTargetsExplained) {
      names.push_back("cgroup:" + path);
    }
  }
  return names;
}

void explain_targets(const ReportOptions& options, const Result<std::string>& state,
                     std::span<const StrategyInfo> strategies, Bundle& bundle) {
  int number = 0;
  for (const std::string& target : names_of_targets(state)) {
    ExplainOptions explain;
    explain.target = target;
    explain.config_path = options.config_path;
    explain.cgroup_root = options.cgroup_root;
    explain.proc_root = options.proc_root;
    explain.socket_path = options.socket_path;
    std::ostringstream text;
    std::ostringstream problem;
    const bool done = run_explain(explain, strategies, text, problem) == kExitOk;
    bundle.add(fmt::format("explain-{:02}.txt", ++number),
               done ? Result<std::string>(text.str()) : fail(target + ": " + problem.str()));
  }
}

}  // namespace

int run_report(const ReportOptions& options, const BuildInfo& build,
               std::span<const StrategyInfo> strategies, std::ostream& out, std::ostream& err) {
  const std::string directory =
      options.directory.empty() ? "headgate-report-" + utc_stamp() : options.directory;
  if (::mkdir(directory.c_str(), 0700) != 0) {
    return cli::failed("report",
                       fmt::format("cannot make {}: {}; --out names a directory that does not "
                                   "exist yet",
                                   directory, web::errno_name(errno)),
                       options.json, out, err);
  }
  Bundle bundle(directory);
  std::ostringstream version;
  (void)run_version(VersionOptions{true}, build, version);
  bundle.add("version.json", std::string_view(version.str()));

  DoctorOptions doctor;
  doctor.pin_root = options.pin_root;
  doctor.cgroup_root = options.cgroup_root;
  doctor.proc_root = options.proc_root;
  doctor.socket_path = options.socket_path;
  const auto checks = cli::diagnose(cli::look_around(doctor));
  bundle.add("doctor.txt", std::string_view(cli::doctor_text(checks)));
  bundle.add("doctor.json", std::string_view(cli::doctor_json(checks) + '\n'));

  const ControlClient agent(options.socket_path);
  const auto state = agent.state();
  bundle.add("state.json", state);
  bundle.add("config.yaml", read_file(options.config_path));
  bundle.add("config-in-force.yaml", agent.config());
  bundle.add("metrics.txt", options.web_listen_address.empty()
                                ? Result<std::string>(fail("no --web.listen-address"))
                                : fetch(options.web_listen_address, "/metrics"));
  explain_targets(options, state, strategies, bundle);

  std::string index =
      "What `headgate report` has gathered. Secrets are masked by their looks: read "
      "it before you send it.\n\n";
  for (const Bundle::File& file : bundle.files()) {
    index += file.missing.empty() ? file.name + '\n'
                                  : fmt::format("{} is missing: {}\n", file.name, file.missing);
  }
  bundle.add("README.txt", std::string_view(index));
  if (bundle.unwritten() > 0) {
    return cli::failed("report", directory + ": some files could not be written", options.json, out,
                       err);
  }
  if (options.json) {
    cli::Json files = cli::Json::array();
    for (const Bundle::File& file : bundle.files()) {
      files.push_back(
          {{"name", file.name},
           {"missing", file.missing.empty() ? cli::Json(nullptr) : cli::Json(file.missing)}});
    }
    out << cli::to_text(
               cli::Json{{"schema", 1}, {"directory", directory}, {"files", std::move(files)}})
        << '\n';
  } else {
    out << index << "\nin " << directory << "; to send it: tar -czf " << directory << ".tar.gz "
        << directory << '\n';
  }
  return kExitOk;
}

}  // namespace headgate
