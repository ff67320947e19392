// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/pods.h"

#include <unistd.h>

#include <cstdlib>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "agent/base/log.h"
#include "agent/targets/api_server.h"
#include "agent/targets/cri.h"
#include "agent/targets/pod_fallback.h"

namespace headgate {
namespace {

Result<ApiServerOptions> find_server(const KubernetesOptions& options) {
  if (options.api_server == "none") {
    return fail("--kubernetes.api-server is none");
  }
  auto found = find_api_server(options.api_server, options.node_name, options.service_account,
                               [](const char* name) { return std::getenv(name); });  // NOLINT
  if (found) {
    found->chance = [engine = std::mt19937_64(std::random_device{}())]() mutable {
      return std::uniform_real_distribution<double>(0, 1)(engine);
    };
  }
  return found;
}

Result<CriOptions> find_runtime(const KubernetesOptions& options) {
  CriOptions out;
  out.wanted = [] { return true; };
  if (options.cri_socket == "none") {
    return fail("--kubernetes.cri-socket is none");
  }
  if (options.cri_socket != "auto") {
    out.socket = options.cri_socket;
    return out;
  }
  for (std::string& path : usual_cri_sockets()) {
    if (::access(path.c_str(), F_OK) == 0) {
      out.socket = std::move(path);
      return out;
    }
  }
  return fail(fmt::format("no socket of a container runtime is there ({})",
                          fmt::join(usual_cri_sockets(), ", ")));
}

tl::unexpected<Error> neither(const Error& server, const Error& runtime) {
  return fail(fmt::format("{}; {}", server.message, runtime.message));
}

}  // namespace

Result<std::unique_ptr<PodSource>> open_pods(const KubernetesOptions& options) {
  auto server = find_server(options);
  auto runtime = find_runtime(options);
  if (!server && !runtime) {
    return neither(server.error(), runtime.error());
  }
  if (!runtime) {
    return ApiPods::start(std::move(*server));
  }
  if (!server) {
    log::info("pods come from the container runtime",
              {{"socket", runtime->socket}, {"reason", server.error().message}});
    return CriPods::start(std::move(*runtime));
  }
  auto first = ApiPods::start(std::move(*server));
  if (!first) {
    return first;
  }
  runtime->wanted = [api = first->get()] { return !is_current(*api); };
  auto second = CriPods::start(std::move(*runtime));
  if (!second) {
    return second;
  }
  return std::make_unique<FallbackPods>(std::move(*first), std::move(*second));
}

Result<std::unique_ptr<KubeEvents>> open_events(const KubernetesOptions& options) {
  auto server = find_server(options);
  if (!server) {
    return tl::unexpected<Error>(server.error());
  }
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT: no thread changes the environment
    return std::string(value != nullptr ? value : "");
  };
  return KubeEvents::start(std::move(*server),
                           {variable("POD_NAMESPACE"), variable("POD_NAME"), variable("POD_UID")});
}

Result<PodsPtr> list_pods(const KubernetesOptions& options) {
  const auto server = find_server(options);
  Error why_not = server ? Error{} : server.error();
  if (server) {
    auto listed = ApiPods::list_once(*server);
    if (listed) {
      return listed;
    }
    why_not = listed.error();
  }
  const auto runtime = find_runtime(options);
  if (!runtime) {
    return neither(why_not, runtime.error());
  }
  auto listed = CriPods::list_once(*runtime);
  if (!listed) {
    return neither(why_not, listed.error());
  }
  return listed;
}

}  // namespace headgate
