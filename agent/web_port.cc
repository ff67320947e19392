// SPDX-License-Identifier: Apache-2.0
#include "agent/web_port.h"

#include <chrono>
#include <utility>

#include "agent/base/log.h"

namespace headgate {

AwaitedWebServer::AwaitedWebServer(Start start)
    : start_(std::move(start)), thread_([this] { wait(); }) {}

AwaitedWebServer::~AwaitedWebServer() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void AwaitedWebServer::wait() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::seconds(1), [this] { return end_; })) {
    if (auto started = start_(); started) {
      server_ = std::move(*started);
      log::info("web server", {{"port", server_->port()}});
      return;
    }
  }
}

}  // namespace headgate
