// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "headgate/result.h"

#include "agent/web/server.h"

namespace headgate {

/// A web server whose port another agent of the node still has: tried again once a second on a
/// thread of its own until it is free. The agent behind it goes on meanwhile.
class AwaitedWebServer {
 public:
  using Start = std::function<Result<std::unique_ptr<WebServer>>()>;

  explicit AwaitedWebServer(Start start);
  AwaitedWebServer(const AwaitedWebServer&) = delete;
  AwaitedWebServer& operator=(const AwaitedWebServer&) = delete;
  AwaitedWebServer(AwaitedWebServer&&) = delete;
  AwaitedWebServer& operator=(AwaitedWebServer&&) = delete;
  ~AwaitedWebServer();

 private:
  void wait();

  Start start_;
  std::unique_ptr<WebServer> server_;  // of the thread until it has ended
  std::mutex mutex_;
  std::condition_variable ends_;
  bool end_ = false;    ///< guarded by mutex_
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace headgate
