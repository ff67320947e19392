// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <ostream>
#include <string>
#include <string_view>

#include "agent/base/wall_clock.h"
#include "agent/cli/state_view.h"
#include "agent/web/control_socket.h"

namespace headgate {
namespace {

constexpr int kPeriodMs = 1000;

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int signal) {
  if (signal != SIGWINCH) {
    g_interrupted = 1;
  }
}

/// Ends the loop on SIGTERM, SIGINT and SIGHUP so that the terminal is put right; SIGWINCH only
/// wakes poll(2) up. Restores what was there.
class Signals {
 public:
  Signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;  // no SA_RESTART: poll(2) must return
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], &action, &before_[i]);
    }
  }
  ~Signals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  Signals(Signals&&) = delete;
  Signals& operator=(Signals&&) = delete;

 private:
  static constexpr std::array<int, 4> kSignals{SIGTERM, SIGINT, SIGHUP, SIGWINCH};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// Keys one by one and unechoed, the other screen, no cursor; undone at the end.
class FullScreen {
 public:
  explicit FullScreen(std::ostream& out) : out_(out) {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    out_ << "\x1b[?1049h\x1b[?25l" << std::flush;
  }
  ~FullScreen() {
    out_ << "\x1b[?25h\x1b[?1049l" << std::flush;
    if (raw_) {
      tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;
  FullScreen(FullScreen&&) = delete;
  FullScreen& operator=(FullScreen&&) = delete;

  /// From the top left; what was there before is wiped line by line, so that nothing flickers.
  void draw(std::string_view text) {
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    std::size_t lines_left = size.ws_row > 0 ? size.ws_row : 24U;
    out_ << "\x1b[H";
    while (!text.empty() && lines_left-- > 0) {
      const auto end = text.find('\n');
      out_ << text.substr(0, end) << "\x1b[K" << (lines_left > 0 ? "\n" : "");
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    out_ << "\x1b[J" << std::flush;
  }

 private:
  std::ostream& out_;
  termios before_{};
  bool raw_ = false;
};

bool is_set(const char* name) {
  const char* value = std::getenv(name);  // NOLINT: no other thread changes the environment
  return value != nullptr && *value != '\0';
}

bool is_screen() {
  const char* term = std::getenv("TERM");  // NOLINT: as above
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term != nullptr &&
         std::string_view(term) != "dumb";
}

std::size_t screen_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80U;
}

Result<std::string> table(const ControlClient& client, std::size_t width, bool color) {
  const auto state = client.state();
  if (!state) {
    return tl::unexpected<Error>(state.error());
  }
  const auto view = cli::parse_state(*state, unix_now<std::chrono::milliseconds>());
  if (!view) {
    return tl::unexpected<Error>(view.error());
  }
  return cli::render(*view, width, color);
}

/// Waits for the next second. False = end.
bool wait_a_second(bool read_keys) {
  pollfd keys{STDIN_FILENO, POLLIN, 0};
  const int ready = poll(&keys, read_keys ? 1 : 0, kPeriodMs);
  if (g_interrupted != 0) {
    return false;
  }
  if (ready > 0) {
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') {
      return false;
    }
  }
  return true;
}

int watch_in_terminal(const ControlClient& client, std::ostream& out) {
  const bool color = !is_set("NO_COLOR");  // no-color.org
  FullScreen screen(out);
  do {
    const std::size_t width = screen_width();
    const auto text = table(client, width, color);
    screen.draw(text ? *text + "\nq ends"
                     : cli::cut(cli::plain(text.error().message), width) +
                           "\nlooking again every second; q ends");
  } while (wait_a_second(true));
  return kExitOk;
}

int watch_plainly(const ControlClient& client, std::ostream& out, std::ostream& err) {
  do {
    const auto text = table(client, 0, false);
    if (text) {
      out << *text << std::endl;  // NOLINT: each table must get out before the next second
    } else {
      err << "headgate top: " << text.error().message << '\n';
    }
  } while (wait_a_second(false) && out.good());
  return kExitOk;
}

}  // namespace

int run_top(const TopOptions& options, std::ostream& out, std::ostream& err) {
  const ControlClient client(options.socket_path);
  const auto first = table(client, 0, false);
  if (!first) {
    err << "headgate top: " << first.error().message << '\n';
    return kExitFailure;
  }
  if (options.once) {
    out << *first;
    return kExitOk;
  }
  g_interrupted = 0;
  const Signals signals;
  return is_screen() ? watch_in_terminal(client, out) : watch_plainly(client, out, err);
}

}  // namespace headgate
