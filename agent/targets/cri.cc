// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/cri.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

#include "agent/base/log.h"
#include "agent/targets/cri_messages.h"
#include "agent/targets/http_client.h"
#include "agent/targets/pod_worker.h"

namespace headgate {
namespace {

constexpr std::size_t kMostOfAList = 64U << 20U;

/// One unary call; the message of its answer.
Result<std::string> call(HttpClient& http, const CriOptions& options, std::string_view method,
                         std::size_t& bytes) {
  HttpRequest request;
  request.url = fmt::format("http://localhost/runtime.v1.RuntimeService/{}", method);
  request.unix_socket = options.socket;
  request.grpc_message = grpc_frame("");  // no filter
  request.connect_timeout = request.idle_timeout = request.total_timeout = options.timeout;
  std::string body;
  auto answer = http.ask(request, [&](std::string_view piece) {
    body.append(piece);
    return body.size() <= kMostOfAList;
  });
  const auto where = [&] { return fmt::format("{} {}", options.socket, method); };
  if (!answer) {
    return tl::unexpected<Error>(answer.error().within(options.socket));
  }
  bytes += body.size();
  if (answer->status != 200 || answer->grpc_status != 0) {
    return fail(fmt::format("{}: HTTP {}, gRPC status {}{}{}", where(), answer->status,
                            answer->grpc_status ? fmt::format("{}", *answer->grpc_status) : "none",
                            answer->grpc_message.empty() ? "" : ": ", answer->grpc_message));
  }
  const auto message = parse_grpc_frame(body);
  if (!message) {
    return tl::unexpected<Error>(message.error().within(where()));
  }
  return std::string(*message);
}

Result<PodList> look(HttpClient& http, const CriOptions& options, std::size_t& bytes) {
  const auto sandboxes = call(http, options, "ListPodSandbox", bytes);
  if (!sandboxes) {
    return tl::unexpected<Error>(sandboxes.error());
  }
  const auto containers = call(http, options, "ListContainers", bytes);
  if (!containers) {
    return tl::unexpected<Error>(containers.error());
  }
  const auto parsed_sandboxes = parse_sandboxes(*sandboxes);
  if (!parsed_sandboxes) {
    return tl::unexpected<Error>(parsed_sandboxes.error());
  }
  const auto parsed_containers = parse_containers(*containers);
  if (!parsed_containers) {
    return tl::unexpected<Error>(parsed_containers.error());
  }
  return pods_of(*parsed_sandboxes, *parsed_containers);
}

class Looker final : public PodWorker {
 public:
  Looker(CriOptions options, std::unique_ptr<HttpClient> http)
      : PodWorker("cri", options.socket, "",
                  fmt::format("{} has not been asked yet", options.socket)),
        options_(std::move(options)),
        http_(std::move(http)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Looker() override {
    http_->interrupt();
    thread_.join();
  }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;
  Looker(Looker&&) = delete;
  Looker& operator=(Looker&&) = delete;

 private:
  void run() {
    do {
      if (!options_.wanted()) {
        continue;
      }
      std::size_t bytes = 0;
      auto found = look(*http_, options_, bytes);
      if (!http_->interrupted()) {
        take(std::move(found), bytes);
      }
    } while (http_->sleep(options_.period));
  }

  void take(Result<PodList> found, std::size_t bytes) {
    bool changed = false;
    if (found) {
      const PodsPtr known = pods();
      changed = known == nullptr || *known != *found;
      if (changed) {
        publish(std::make_shared<const PodList>(std::move(*found)));
      } else {
        note_heard();
      }
    }
    change_status([&](PodSourceStatus& status) {
      ++status.lists;
      status.received_bytes += bytes;
      status.errors += found ? 0 : 1;
      status.events += changed ? 1 : 0;
      status.synced = status.synced || found;
      status.problem = found ? std::string() : found.error().message;
    });
    if (!found) {
      log::write_once(log::Level::kWarn, "cri", found.error().message,
                      "the container runtime does not tell of pods",
                      {{"reason", found.error().message}});
    }
  }

  const CriOptions options_;
  const std::unique_ptr<HttpClient> http_;
  std::thread thread_;  ///< last: it uses all above
};

}  // namespace

std::vector<std::string> usual_cri_sockets() {
  return {"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock",
          "/run/crio/crio.sock", "/run/cri-dockerd.sock"};
}

Result<std::unique_ptr<PodSource>> CriPods::start(CriOptions options) {
  auto http = HttpClient::create();
  if (!http) {
    return tl::unexpected<Error>(http.error());
  }
  return std::unique_ptr<PodSource>(new Looker(std::move(options), std::move(*http)));
}

Result<PodsPtr> CriPods::list_once(const CriOptions& options) {
  auto http = HttpClient::create();
  if (!http) {
    return tl::unexpected<Error>(http.error());
  }
  std::size_t bytes = 0;
  auto found = look(**http, options, bytes);
  if (!found) {
    return tl::unexpected<Error>(found.error());
  }
  return std::make_shared<const PodList>(std::move(*found));
}

}  // namespace headgate
