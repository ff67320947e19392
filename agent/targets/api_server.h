// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "headgate/clock.h"
#include "headgate/result.h"

#include "agent/targets/pod_source.h"

namespace headgate {

/// How to reach the API server and what to ask for.
struct ApiServerOptions {
  std::string url;         ///< "https://10.96.0.1:443"
  std::string token_file;  ///< read again for each request: tokens are renewed; "": no token
  std::string ca_file;     ///< "": whom the machine trusts
  std::string node_name;
  Duration connect_timeout = std::chrono::seconds(10);
  Duration list_timeout = std::chrono::seconds(60);
  /// How long a watch lasts: between once and twice this, by chance, so that a thousand nodes that
  /// began together do not come back together. The server ends it then, which costs one request.
  Duration watch_time = std::chrono::minutes(5);
  /// Longest silence of a watch. Bookmarks come about once a minute; a server that has gone without
  /// a word is noticed by this.
  Duration watch_silence = std::chrono::minutes(3);
  Duration backoff_first = std::chrono::milliseconds(800);
  Duration backoff_most = std::chrono::seconds(30);
  std::function<double()> chance;  ///< in [0, 1); called by one thread
};

/// In a pod: from KUBERNETES_SERVICE_HOST and _PORT, and the files of its service account.
/// `url` "auto" = that; `getenv` gives nullptr for what is not set. Errors name what is missing and
/// the remedy.
[[nodiscard]] Result<ApiServerOptions> find_api_server(
    const std::string& url, const std::string& node_name, const std::string& service_account,
    const std::function<const char*(const char*)>& getenv);

/// The wait before the attempt that follows `failures` ones in a row (1 = the first has failed):
/// doubles up to the most, half of it by chance. Pure.
[[nodiscard]] Duration backoff(const ApiServerOptions& options, unsigned failures, double chance);

/// Follows the pods of one node by one list and one watch (Kubernetes API concepts, "Efficient
/// detection of changes"), on a thread of its own. The list is taken from the server's cache
/// (resourceVersion=0, later the version known): never a quorum read of all pods for one node's.
class ApiPods {
 public:
  /// Begins at once and returns; what goes wrong is told by status().
  [[nodiscard]] static Result<std::unique_ptr<PodSource>> start(ApiServerOptions options);
  /// One list, now, on this thread: for commands that end.
  [[nodiscard]] static Result<PodsPtr> list_once(const ApiServerOptions& options);
};

}  // namespace headgate
