// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/director.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "deploy/demo/cgroup.h"
#include "deploy/demo/report.h"
#include "deploy/demo/stage.h"

namespace headgate::demo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "headgate-demo-";
constexpr std::string_view kBpffs = "/sys/fs/bpf";
constexpr long kBpffsMagic = 0xcafe4a11;  // BPF_FS_MAGIC, uapi/linux/magic.h
constexpr double kRestartDelay_s = 1.0;

volatile sig_atomic_t g_stop = 0;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Returns early when asked to stop.
void sleep_until(std::int64_t at_ns) {
  const timespec when{static_cast<time_t>(at_ns / 1'000'000'000),
                      static_cast<long>(at_ns % 1'000'000'000)};
  while (!stop_requested() &&
         clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

tl::unexpected<Error> interrupted() { return fail("interrupted"); }

sockaddr_in address_of(std::string_view host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, std::string(host).c_str(), &address.sin_addr);
  return address;
}

/// Connects within `timeout_ms`; an invalid descriptor when that fails.
UniqueFd try_connect(const sockaddr_in& to, int timeout_ms) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    return {};
  }
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    pollfd waiting{fd.get(), POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (errno != EINPROGRESS || poll(&waiting, 1, timeout_ms) != 1 ||
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
      return {};
    }
  }
  return fd;
}

struct HttpAnswer {
  int status = 0;  ///< 0 = no answer
  std::string body;
};

/// GET from the agent's web server on this machine's loopback.
HttpAnswer http_get(std::uint16_t port, std::string_view path) {
  HttpAnswer answer;
  const UniqueFd fd = try_connect(address_of("127.0.0.1", port), 500);
  if (!fd) {
    return answer;
  }
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return answer;
  }
  std::string text;
  std::array<char, 4096> buffer{};
  for (pollfd waiting{fd.get(), POLLIN, 0}; poll(&waiting, 1, 1000) == 1;) {
    const ssize_t n = recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const std::size_t head = text.find("\r\n\r\n");
  if (head != std::string::npos && text.size() > 12) {
    std::from_chars(text.data() + 9, text.data() + 12, answer.status);
    answer.body = text.substr(head + 4);
  }
  return answer;
}

Result<std::uint16_t> free_loopback_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = address_of("127.0.0.1", 0);
  socklen_t size = sizeof address;
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return sys_fail(errno, "find a free port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

std::string last_lines(const std::string& file, std::size_t count) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  std::string text;
  for (std::size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i) {
    text += "\n  " + lines[i];
  }
  return text;
}

/// CPU seconds of a process so far (proc(5), stat: fields 14 and 15); 0 when it has gone.
double cpu_seconds(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(end_of_name + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) {
    fields >> skipped;
  }
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/statm", pid));
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// TCP sockets of the namespace of `pid`: established, half-open, closing; not those in TIME_WAIT.
std::uint64_t tcp_sockets(pid_t pid) {
  std::uint64_t sum = 0;
  for (const char* file : {"sockstat", "sockstat6"}) {
    std::ifstream in(fmt::format("/proc/{}/net/{}", pid, file));
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string name, key;
      std::uint64_t value = 0;
      if (fields >> name >> key >> value && (name == "TCP:" || name == "TCP6:") && key == "inuse") {
        sum += value;
      }
    }
  }
  return sum;
}

bool bpffs_mounted() {
  struct statfs info {};
  return statfs(kBpffs.data(), &info) == 0 && info.f_type == kBpffsMagic;
}

/// What the agent pins in bpffs, and the mount itself where the agent had to make it.
class Pins {
 public:
  Pins() : root_(fmt::format("{}/{}{}", kBpffs, kPrefix, getpid())), mounted_(bpffs_mounted()) {
    remove_stale();
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  Pins(Pins&&) = delete;
  Pins& operator=(Pins&&) = delete;
  ~Pins() {
    std::error_code error;
    if (!bpffs_mounted()) {
      return;
    }
    fs::remove_all(root_, error);
    // Somebody else may have pinned there meanwhile: an unmount would take it away.
    if (!mounted_ && fs::is_empty(kBpffs, error) && !error) {
      umount2(kBpffs.data(), MNT_DETACH);
    }
  }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  static void remove_stale() {
    std::error_code error;
    std::vector<fs::path> stale;
    for (const auto& entry : fs::directory_iterator(kBpffs, error)) {
      const std::string name = entry.path().filename();
      pid_t pid = 0;
      if (name.compare(0, kPrefix.size(), kPrefix) == 0 &&
          std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), pid).ec ==
              std::errc{} &&
          pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
        stale.push_back(entry.path());
      }
    }
    for (const fs::path& path : stale) {
      fs::remove_all(path, error);
    }
  }
  std::string root_;
  bool mounted_;
};

/// The groups that live as long as the demo.
struct Groups {
  CgroupRoots roots;
  RootControllers controllers;
  Cgroup parent;
  Cgroup clients;
  Cgroup agent;

  static Result<Groups> create() {
    auto roots = CgroupRoots::find();
    if (!roots) {
      return tl::unexpected(roots.error());
    }
    remove_stale_cgroups(*roots, kPrefix);
    auto controllers = RootControllers::enable(*roots);
    if (!controllers) {
      return tl::unexpected(controllers.error());
    }
    CgroupLimits weight;
    weight.heavy_weight = true;
    const std::string top = fmt::format("/{}{}", kPrefix, getpid());
    auto parent = Cgroup::create(*roots, top, weight, /*delegate=*/true);
    if (!parent) {
      return tl::unexpected(parent.error());
    }
    auto clients = Cgroup::create(*roots, top + "/clients", weight, /*delegate=*/false);
    if (!clients) {
      return tl::unexpected(clients.error());
    }
    auto agent = Cgroup::create(*roots, top + "/agent", weight, /*delegate=*/false);
    if (!agent) {
      return tl::unexpected(agent.error());
    }
    return Groups{*roots, std::move(*controllers), std::move(*parent), std::move(*clients),
                  std::move(*agent)};
  }
};

/// The collector in its namespace and group, under a supervisor that starts it again a second after
/// it has died.
class Collector {
 public:
  static Result<Collector> start(const Subject& subject, const Groups& groups,
                                 const Options& options, std::string_view log_name) {
    auto network = Network::create();
    if (!network) {
      return tl::unexpected(network.error());
    }
    CgroupLimits limits;
    limits.cpu_cores = options.limits.cpu_cores;
    limits.memory_bytes = options.limits.memory_bytes;
    limits.heavy_weight = true;
    auto group = Cgroup::create(groups.roots, groups.parent.path() + "/collector", limits,
                                /*delegate=*/false);
    if (!group) {
      return tl::unexpected(group.error());
    }
    Spawn spawn_this;
    spawn_this.argv = subject.argv;
    spawn_this.environment = subject.environment;
    spawn_this.procs_files = group->procs_files();
    spawn_this.netns_fd = network->collector_fd();
    spawn_this.log_file = fmt::format("{}/{}", options.work_directory, log_name);
    Collector collector(std::move(*network), std::move(*group), std::move(spawn_this));
    if (auto up = collector.wait_for(subject.port); !up) {
      return tl::unexpected(up.error());
    }
    return collector;
  }

  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] const Cgroup& group() const { return group_; }
  [[nodiscard]] const std::vector<Restart>& restarts() const { return restarts_; }

  /// Notices a death, and starts it again when its time has come.
  Result<> supervise(double t_s) {
    if (child_.running() && child_.reap()) {
      const std::uint64_t kills = group_.read().oom_kills;
      restarts_.push_back({t_s, kills > oom_kills_, describe_status(child_.status())});
      oom_kills_ = kills;
      start_at_s_ = t_s + kRestartDelay_s;
    }
    return !child_.running() && t_s >= start_at_s_ ? launch() : Result<>{};
  }

  [[nodiscard]] Sample sample(double t_s) const {
    const CgroupReading r = group_.read();
    return {t_s,         r.usage_ns,     r.periods,
            r.throttled, r.memory_bytes, child_.running() ? tcp_sockets(child_.pid()) : 0};
  }

 private:
  Collector(Network network, Cgroup group, Spawn spawn_this)
      : network_(std::move(network)), group_(std::move(group)), spawn_(std::move(spawn_this)) {}

  Result<> launch() {
    auto pid = spawn(spawn_);
    if (!pid) {
      return tl::unexpected(pid.error());
    }
    child_ = Child(*pid);
    return {};
  }

  Result<> wait_for(std::uint16_t port) {
    if (auto launched = launch(); !launched) {
      return launched;
    }
    const std::int64_t give_up_ns = now_ns() + 15'000'000'000;
    const sockaddr_in address = address_of(Network::server_address(), port);
    bool up = false;
    while (!up) {
      if (stop_requested()) {
        return interrupted();
      }
      if (child_.reap()) {
        return fail(fmt::format("{} {} at its start:{}", spawn_.argv[0],
                                describe_status(child_.status()), last_lines(spawn_.log_file, 10)));
      }
      auto tried = within_netns(network_.clients_fd(), [&]() -> Result<> {
        up = try_connect(address, 200).valid();
        return {};
      });
      if (!tried) {
        return tried;
      }
      if (!up && now_ns() > give_up_ns) {
        return fail(fmt::format("{} does not listen on port {} after 15 s:{}", spawn_.argv[0], port,
                                last_lines(spawn_.log_file, 10)));
      }
      if (!up) {
        sleep_until(now_ns() + 50'000'000);
      }
    }
    return {};
  }

  // The child goes first, then its group, then its namespace: reverse order of declaration.
  Network network_;
  Cgroup group_;
  Spawn spawn_;
  Child child_;
  std::vector<Restart> restarts_;
  std::uint64_t oom_kills_ = 0;
  double start_at_s_ = 0;
};

class Agent {
 public:
  static Result<Agent> start(const Subject& subject, const Groups& groups, const Cgroup& target,
                             const Options& options, const std::string& pin_root) {
    auto port = free_loopback_port();
    if (!port) {
      return tl::unexpected(port.error());
    }
    const std::string config = options.work_directory + "/demo.yaml";
    {
      std::ofstream out(config);
      out << fmt::format(
          "apiVersion: headgate/v1\n"
          "targets:\n"
          "  - name: collector\n"
          "    match: {{cgroup: {}}}\n"
          "    strategy: graded\n"
          "    endpoints:\n"
          "      - {{name: push, port: {}, protocol: http, refuse: reset}}\n",
          target.path(), subject.port);
      if (!out.flush()) {
        return sys_fail(errno, "write " + config);
      }
    }
    Spawn what;
    what.argv = {options.headgate,
                 "run",
                 "--config",
                 config,
                 "--web.listen-address",
                 fmt::format("127.0.0.1:{}", *port),
                 "--pin-root",
                 pin_root,
                 "--on-exit",
                 "purge"};
    what.procs_files = groups.agent.procs_files();
    what.log_file = options.work_directory + "/headgate.log";
    auto pid = spawn(what);
    if (!pid) {
      return tl::unexpected(pid.error());
    }
    Agent agent(*pid, *port, what.log_file);
    if (auto ready = agent.wait_until_ready(); !ready) {
      return tl::unexpected(ready.error());
    }
    return agent;
  }

  [[nodiscard]] pid_t pid() const { return child_.pid(); }
  /// Empty while it runs.
  [[nodiscard]] std::string failure() {
    if (child_.running() && child_.reap()) {
      failure_ = fmt::format("{} during the run:{}", describe_status(child_.status()),
                             last_lines(log_file_, 5));
    }
    return failure_;
  }
  [[nodiscard]] HttpAnswer get(std::string_view path) const { return http_get(port_, path); }

 private:
  Agent(pid_t pid, std::uint16_t port, std::string log_file)
      : child_(pid, /*grace_ms=*/3000), port_(port), log_file_(std::move(log_file)) {}

  Result<> wait_until_ready() {
    const std::int64_t give_up_ns = now_ns() + 15'000'000'000;
    while (true) {
      if (stop_requested()) {
        return interrupted();
      }
      if (child_.reap()) {
        return fail(fmt::format("headgate {} at its start:{}", describe_status(child_.status()),
                                last_lines(log_file_, 15)));
      }
      const HttpAnswer ready = http_get(port_, "/readyz?verbose");
      if (ready.status == 200) {
        return {};
      }
      if (now_ns() > give_up_ns) {
        return fail(fmt::format("headgate is not ready after 15 s (/readyz: {} {}):{}",
                                ready.status, ready.body, last_lines(log_file_, 15)));
      }
      sleep_until(now_ns() + 100'000'000);
    }
  }

  Child child_;
  std::uint16_t port_;
  std::string log_file_;
  std::string failure_;
};

LoadTarget load_target(const Subject& subject, const Limits& limits, std::size_t light,
                       std::size_t heavy) {
  LoadTarget target;
  target.server = address_of(Network::server_address(), subject.port);
  for (const std::string& address : Network::client_addresses()) {
    target.sources.push_back(address_of(address, 0).sin_addr);
  }
  for (std::size_t group = 0; group < subject.groups; ++group) {
    target.light.push_back(subject.request(group, light));
    target.heavy.push_back(subject.request(group, heavy));
  }
  target.deadline_us = static_cast<std::uint32_t>(limits.deadline_s * 1e6);
  return target;
}

Result<Child> start_load(const Groups& groups, const Network& network, const Options& options,
                         const std::function<Result<>()>& load) {
  Spawn what;
  what.procs_files = groups.clients.procs_files();
  what.netns_fd = network.clients_fd();
  what.log_file = options.work_directory + "/load.log";
  what.nice = -10;
  what.function = [&load] {
    const auto done = load();
    if (!done) {
      fmt::print(stderr, "{}\n", done.error().message);
    }
    std::fflush(stderr);
    return done ? 0 : 1;
  };
  auto pid = spawn(what);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  return Child(*pid);
}

/// CPU of a request, from a few seconds with more clients than it can serve.
struct Cost {
  double per_request_s = 0;
  double quota_reached = 0;
};

Result<Cost> measure_cost(const Subject& subject, const Groups& groups, const Options& options,
                          Collector& collector, const LoadTarget& target, bool heavy, double warm_s,
                          double measured_s) {
  static constexpr std::size_t kMost = 200'000;
  auto shared = SharedRecords::create(kMost);
  if (!shared) {
    return tl::unexpected(shared.error());
  }
  const std::span<Record> records = shared->records();
  const std::function<Result<>()> load = [&] {
    return run_closed_loop(target, heavy, 8, warm_s + measured_s + 0.2, records);
  };
  auto child = start_load(groups, collector.network(), options, load);
  if (!child) {
    return tl::unexpected(child.error());
  }
  const auto served = [&] {
    return std::count_if(records.begin(), records.end(), [](const Record& r) {
      return r.outcome.load(std::memory_order_acquire) == Outcome::kOk;
    });
  };
  const std::int64_t start_ns = now_ns();
  const auto at = [&](double t_s) { return start_ns + static_cast<std::int64_t>(t_s * 1e9); };
  sleep_until(at(warm_s));
  const auto served_before = served();
  const CgroupReading before = collector.group().read();
  const std::int64_t from_ns = now_ns();
  sleep_until(at(warm_s + measured_s));
  const auto served_after = served();
  const CgroupReading after = collector.group().read();
  const std::int64_t to_ns = now_ns();
  if (stop_requested()) {
    return interrupted();
  }
  const double cpu_s = static_cast<double>(after.usage_ns - before.usage_ns) / 1e9;
  if (served_after - served_before < 10 || cpu_s <= 0) {
    return fail(fmt::format(
        "{} served {} requests in {:.1f} s with 8 clients: nothing to measure its capacity by",
        subject.argv[0], served_after - served_before, measured_s));
  }
  return Cost{cpu_s / static_cast<double>(served_after - served_before),
              cpu_s / (static_cast<double>(to_ns - from_ns) / 1e9) / options.limits.cpu_cores};
}

Result<Calibration> calibrate(const Subject& subject, const Groups& groups,
                              const Options& options) {
  auto collector = Collector::start(subject, groups, options, "calibration.log");
  if (!collector) {
    return tl::unexpected(collector.error());
  }
  const LoadTarget target = load_target(subject, options.limits, subject.light, subject.heavy);
  auto light = measure_cost(subject, groups, options, *collector, target, false, 1.0, 4.0);
  if (!light) {
    return tl::unexpected(light.error());
  }
  auto heavy = measure_cost(subject, groups, options, *collector, target, true, 1.0, 2.5);
  if (!heavy) {
    return tl::unexpected(heavy.error());
  }
  Calibration c;
  c.light_cost_s = light->per_request_s;
  c.capacity_per_s = options.limits.cpu_cores / light->per_request_s;
  c.quota_reached = std::max(light->quota_reached, heavy->quota_reached);
  c.light_units = subject.light;
  // Cost grows nearly in line with the size between the two that were measured.
  const double slope = (heavy->per_request_s - light->per_request_s) /
                       static_cast<double>(subject.heavy - subject.light);
  const double units =
      slope > 0 ? static_cast<double>(subject.light) + 3 * light->per_request_s / slope : 0;
  c.heavy_units = static_cast<std::size_t>(std::clamp(std::round(units),
                                                      2.0 * static_cast<double>(subject.light),
                                                      20.0 * static_cast<double>(subject.light)));
  c.heavy_cost_s =
      light->per_request_s + slope * static_cast<double>(c.heavy_units - subject.light);
  return c;
}

/// The second before `t_s`, from the records as they are now.
Second last_second(const Run& run, std::span<const Record> records, double t_s) {
  Second s;
  s.t_s = t_s;
  std::vector<double> admitted;
  const auto at_us = [](double t) { return static_cast<std::uint32_t>(std::max(0.0, t) * 1e6); };
  const auto from =
      std::lower_bound(run.arrivals.begin(), run.arrivals.end(), at_us(t_s - 4),
                       [](const Arrival& a, std::uint32_t at) { return a.at_us < at; });
  for (auto a = from; a != run.arrivals.end() && a->at_us < at_us(t_s); ++a) {
    const Record& record = records[static_cast<std::size_t>(a - run.arrivals.begin())];
    const Outcome outcome = record.outcome.load(std::memory_order_acquire);
    s.offered += a->at_us >= at_us(t_s - 1) ? 1 : 0;
    const double latency_s = record.latency_us / 1e6;
    const double end_s = a->at_us / 1e6 + latency_s;
    if (outcome == Outcome::kNotSent || outcome == Outcome::kPending || end_s < t_s - 1 ||
        end_s >= t_s) {
      continue;
    }
    if (outcome == Outcome::kOk) {
      ++s.served;
      admitted.push_back(latency_s);
    } else if (outcome == Outcome::kRefused) {
      ++s.refused;
    } else {
      ++s.failed;
      admitted.push_back(latency_s);
    }
  }
  s.p99_s = quantile(admitted, 0.99);
  return s;
}

Result<Run> run_once(const Subject& subject, const Groups& groups, const Options& options,
                     const Calibration& calibration, bool with_headgate, Live& live) {
  Run run;
  run.with_headgate = with_headgate;
  run.phases = overload_story(calibration.capacity_per_s, options.seconds_scale);
  run.arrivals = poisson_arrivals(run.phases, options.seed, subject.groups);
  const LoadTarget target =
      load_target(subject, options.limits, calibration.light_units, calibration.heavy_units);

  auto shared = SharedRecords::create(run.arrivals.size());
  if (!shared) {
    return tl::unexpected(shared.error());
  }
  const std::span<Record> records = shared->records();
  auto collector = Collector::start(subject, groups, options,
                                    with_headgate ? "collector-with.log" : "collector-without.log");
  if (!collector) {
    return tl::unexpected(collector.error());
  }
  const Pins pins;
  std::optional<Agent> agent;
  if (with_headgate) {
    auto started = Agent::start(subject, groups, collector->group(), options, pins.root());
    if (!started) {
      return tl::unexpected(started.error());
    }
    agent.emplace(std::move(*started));
    std::ofstream(options.work_directory + "/readyz.txt") << agent->get("/readyz?verbose").body;
  }

  const std::int64_t start_ns = now_ns() + 300'000'000;
  const std::function<Result<>()> load = [&] {
    return run_open_loop(target, run.phases, run.arrivals, start_ns, records);
  };
  auto generator = start_load(groups, collector->network(), options, load);
  if (!generator) {
    return tl::unexpected(generator.error());
  }
  const double agent_cpu_before = agent ? cpu_seconds(agent->pid()) : 0;
  const double length_s = total_seconds(run.phases);
  live.begin(run);
  bool loading = true;
  for (int tick = 0; loading; ++tick) {
    sleep_until(start_ns + std::int64_t{tick} * 100'000'000);
    if (stop_requested()) {
      return interrupted();
    }
    const double t_s = static_cast<double>(now_ns() - start_ns) / 1e9;
    if (auto supervised = collector->supervise(t_s); !supervised) {
      return tl::unexpected(supervised.error());
    }
    run.samples.push_back(collector->sample(t_s));
    if (agent && run.agent_failure.empty()) {
      run.agent_failure = agent->failure();
    }
    if (tick > 0 && tick % 10 == 0 && t_s <= length_s + 0.5) {
      run.restarts = collector->restarts();
      live.show(run, last_second(run, records, static_cast<double>(tick / 10)), options.limits);
    }
    if (generator->reap()) {
      loading = false;
    } else if (t_s > length_s + options.limits.deadline_s + 5) {
      return fail("the load generator did not end in time");
    }
  }
  if (generator->status() != 0) {
    return fail(fmt::format("the load generator {}:{}", describe_status(generator->status()),
                            last_lines(options.work_directory + "/load.log", 5)));
  }
  run.restarts = collector->restarts();
  if (agent && run.agent_failure.empty()) {
    run.agent_cpu_cores = (cpu_seconds(agent->pid()) - agent_cpu_before) / length_s;
    run.agent_rss_bytes = resident_bytes(agent->pid());
    std::ofstream(options.work_directory + "/metrics.txt") << agent->get("/metrics").body;
    std::ofstream(options.work_directory + "/state.json") << agent->get("/api/v1/state").body;
  }
  run.requests.reserve(records.size());
  for (const Record& r : records) {
    run.requests.push_back({r.lag_us / 1e6, r.connect_us / 1e6, r.latency_us / 1e6,
                            r.outcome.load(std::memory_order_acquire)});
  }
  return run;
}

}  // namespace

void request_stop() { g_stop = 1; }
bool stop_requested() { return g_stop != 0; }

Result<Outcomes> direct(const Subject& subject, const Options& options) {
  // Sampling on time: the demo itself stays outside of the weighted groups.
  setpriority(PRIO_PROCESS, 0, -15);
  auto groups = Groups::create();
  if (!groups) {
    return tl::unexpected(groups.error());
  }
  Outcomes outcomes;
  outcomes.subject_title = subject.title;
  utsname system{};
  uname(&system);
  outcomes.machine = fmt::format("Linux {}, {} CPUs, cgroup {}", system.release,
                                 sysconf(_SC_NPROCESSORS_ONLN), groups->roots.name());
  Live live;
  live.announce(fmt::format("{}: {:.1f} cores, {} MiB; measuring its capacity ...", subject.title,
                            options.limits.cpu_cores, options.limits.memory_bytes >> 20));
  auto calibration = calibrate(subject, *groups, options);
  if (!calibration) {
    return tl::unexpected(calibration.error().within("measure the collector's capacity"));
  }
  outcomes.calibration = *calibration;
  live.announce(fmt::format(
      "{:.0f} requests/s of {} {} ({:.1f} ms of CPU each); {} {} cost {:.1f} ms; {:.0f} % of the "
      "quota reached",
      calibration->capacity_per_s, calibration->light_units, subject.unit,
      calibration->light_cost_s * 1e3, calibration->heavy_units, subject.unit,
      calibration->heavy_cost_s * 1e3, calibration->quota_reached * 100));
  for (const bool with_headgate : {false, true}) {
    if (!(with_headgate ? options.run_protected : options.run_unprotected)) {
      continue;
    }
    auto run = run_once(subject, *groups, options, *calibration, with_headgate, live);
    if (!run) {
      return tl::unexpected(
          run.error().within(with_headgate ? "run with Headgate" : "run without Headgate"));
    }
    (with_headgate ? outcomes.with_headgate : outcomes.unprotected) = std::move(*run);
  }
  return outcomes;
}

}  // namespace headgate::demo
