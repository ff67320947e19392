// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/event_queue.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace headgate::demo {
namespace {

constexpr std::uint64_t kTimerEvent = ~std::uint64_t{0};

}  // namespace

Result<> EventQueue::open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll_ || !timer_) {
    return sys_fail(errno, "load generator: epoll or timerfd");
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimerEvent;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) {
    return sys_fail(errno, "load generator: epoll_ctl");
  }
  return {};
}

bool EventQueue::add(int fd, std::uint64_t token) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = token;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

Result<> EventQueue::wait(std::int64_t wake_ns, const Handler& handler) {
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(wake_ns / 1'000'000'000);
  when.it_value.tv_nsec = static_cast<long>(wake_ns % 1'000'000'000);
  if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) != 0) {
    return sys_fail(errno, "load generator: timerfd_settime");
  }
  std::array<epoll_event, 256> events{};
  const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
  if (n < 0 && errno != EINTR) {
    return sys_fail(errno, "load generator: epoll_wait");
  }
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kTimerEvent) {
      std::uint64_t expirations = 0;
      if (read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EAGAIN) {
        return sys_fail(errno, "load generator: read timerfd");
      }
      continue;
    }
    handler(event.data.u64, event.events);
  }
  return {};
}

}  // namespace headgate::demo
