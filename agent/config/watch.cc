// SPDX-License-Identifier: Apache-2.0
#include "agent/config/watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"
#include "agent/config/read_file.h"

namespace headgate {
namespace {

constexpr Duration kLookInterval = std::chrono::seconds(1);
constexpr Duration kStable = std::chrono::milliseconds(100);
constexpr Duration kAway = std::chrono::milliseconds(500);
/// A busy directory (a configuration in /tmp) must not make the agent read all the time.
constexpr Duration kBetweenHints = std::chrono::milliseconds(50);

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<std::string> resolve(const std::string& path) {
  std::array<char, PATH_MAX> out{};
  if (::realpath(path.c_str(), out.data()) == nullptr) {
    return std::nullopt;
  }
  return std::string(out.data());
}

class Watcher final : public ConfigWatcher {
 public:
  Watcher(std::string path, UniqueFd epoll, UniqueFd timer, UniqueFd inotify)
      : path_(std::move(path)),
        inotify_(std::move(inotify)),
        timer_(std::move(timer)),
        epoll_(std::move(epoll)) {
    watch_directories();
    wake_in(kLookInterval);
  }

  void start_from(std::string text) { text_ = std::move(text); }
  [[nodiscard]] const std::string& text() const override { return text_; }
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  [[nodiscard]] std::optional<std::string> poll(Instant now) override;
  [[nodiscard]] const std::string& problem() const override { return problem_; }
  [[nodiscard]] std::string warning() const override;

 private:
  void watch_directories();
  [[nodiscard]] bool drain();
  void wake_in(Duration delay);

  std::string path_;
  std::string text_;
  UniqueFd inotify_;  ///< invalid where inotify cannot be had: the look once a second is enough
  UniqueFd timer_;
  UniqueFd epoll_;
  std::set<int> watches_;
  std::optional<Instant> next_look_;
  Instant last_look_{};
  /// Another text than text_, and since when it has stood there unchanged.
  std::optional<std::string> pending_;
  Instant pending_since_{};
  std::optional<Instant> away_since_;  ///< cannot be read since
  std::string problem_;
};

void Watcher::watch_directories() {
  if (!inotify_) {
    return;
  }
  constexpr std::uint32_t kMask = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_CLOSE_WRITE |
                                  IN_MODIFY | IN_DELETE | IN_ATTRIB | IN_ONLYDIR;
  std::set<std::string> directories{directory_of(path_)};
  if (const auto goal = resolve(path_)) {
    directories.insert(directory_of(*goal));
  }
  // A directory that is watched already keeps its number, so this can be done at every look; the
  // same name may stand for another directory by now.
  std::set<int> watches;
  for (const std::string& directory : directories) {
    const int watch = ::inotify_add_watch(inotify_.get(), directory.c_str(), kMask);
    if (watch >= 0) {
      watches.insert(watch);
    }
  }
  for (const int watch : watches_) {
    if (!watches.contains(watch)) {
      (void)::inotify_rm_watch(inotify_.get(), watch);
    }
  }
  watches_ = std::move(watches);
}

bool Watcher::drain() {
  bool hinted = false;
  std::array<char, 4096> events{};
  // Bounded: what still comes is seen at the next call.
  for (int i = 0; i < 64 && inotify_; ++i) {
    if (::read(inotify_.get(), events.data(), events.size()) <= 0) {
      break;
    }
    hinted = true;
  }
  std::uint64_t expirations = 0;
  if (::read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EAGAIN) {
    hinted = true;
  }
  return hinted;
}

void Watcher::wake_in(Duration delay) {
  const std::int64_t ns = std::max<std::int64_t>(delay.count(), 1);
  itimerspec spec{};
  spec.it_value.tv_sec = ns / 1'000'000'000;
  spec.it_value.tv_nsec = ns % 1'000'000'000;
  (void)::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

std::optional<std::string> Watcher::poll(Instant now) {
  if (!next_look_) {  // the first call
    next_look_ = now;
  }
  if (drain()) {
    next_look_ = std::min(*next_look_, std::max(now, last_look_ + kBetweenHints));
  }
  if (now < *next_look_) {
    wake_in(*next_look_ - now);
    return std::nullopt;
  }
  last_look_ = now;
  next_look_ = now + kLookInterval;
  watch_directories();
  std::optional<std::string> changed;
  auto found = read_small_file(path_);
  if (found) {
    away_since_.reset();
  }
  if (!found) {
    pending_.reset();
    away_since_ = away_since_.value_or(now);
    if (now - *away_since_ >= kAway) {
      problem_ = found.error().within(path_).message;
    } else {
      next_look_ = *away_since_ + kAway;
    }
  } else if (*found == text_ && problem_.empty()) {
    pending_.reset();
  } else if (pending_ != *found) {
    pending_ = std::move(*found);
    pending_since_ = now;
    next_look_ = now + kStable;
  } else if (now - pending_since_ < kStable) {
    next_look_ = pending_since_ + kStable;
  } else {
    text_ = std::move(*pending_);
    pending_.reset();
    problem_.clear();
    changed = text_;
  }
  wake_in(*next_look_ - now);
  return changed;
}

std::string Watcher::warning() const {
  std::ifstream stream("/proc/self/mountinfo");
  const std::string mounts{std::istreambuf_iterator<char>(stream), {}};
  return mount_warning(resolve(path_).value_or(path_), mounts);
}

/// mountinfo writes blanks, tabs, newlines and backslashes as \ooo (proc(5)).
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t k) { return text[i + k] >= '0' && text[i + k] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(1) && octal(2) && octal(3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string mount_warning(std::string_view path, std::string_view mountinfo) {
  while (!mountinfo.empty()) {
    const std::size_t end = mountinfo.find('\n');
    std::string_view line = mountinfo.substr(0, end);
    mountinfo.remove_prefix(end == std::string_view::npos ? mountinfo.size() : end + 1);
    // Fields: id, parent, major:minor, root, mount point, ...
    for (int field = 0; field < 4; ++field) {
      const std::size_t blank = line.find(' ');
      line.remove_prefix(blank == std::string_view::npos ? line.size() : blank + 1);
    }
    if (unescape(line.substr(0, line.find(' '))) == path) {
      return fmt::format(
          "config is not on a projected volume directory; hot reload will not work: {} is itself a "
          "mount point (a subPath volume, or one file bound into a container), so a file that "
          "replaces it is never seen; mount its whole directory instead",
          path);
    }
  }
  return {};
}

Result<std::unique_ptr<ConfigWatcher>> ConfigWatcher::open(const std::string& path) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!epoll || !timer) {
    return sys_fail(errno, "watch " + path);
  }
  for (const UniqueFd* source : {&timer, &inotify}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (*source && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, source->get(), &event) != 0) {
      return sys_fail(errno, "watch " + path);
    }
  }
  // The watches come before the reading, so that a change in between is seen as one.
  auto watcher =
      std::make_unique<Watcher>(path, std::move(epoll), std::move(timer), std::move(inotify));
  auto text = read_small_file(path);
  if (!text) {
    return tl::unexpected(text.error().within(path));
  }
  watcher->start_from(std::move(*text));
  return watcher;
}

}  // namespace headgate
