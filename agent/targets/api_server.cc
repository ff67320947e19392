// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/api_server.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "agent/base/log.h"
#include "agent/targets/api_request.h"
#include "agent/targets/http_client.h"
#include "agent/targets/pod_worker.h"
#include "agent/targets/proc.h"

namespace headgate {
namespace {

constexpr long kOk = 200;
constexpr long kUnauthorized = 401;
constexpr long kForbidden = 403;
constexpr long kGone = 410;
constexpr long kGatewayTimeout = 504;
/// 110 pods of 20 kB, and 30 times that: what is larger is no list of one node's pods.
constexpr std::size_t kMostOfAList = 64U << 20U;
/// A version that is too old so soon after it was listed is no matter of a long break.
constexpr Duration kJustNow = std::chrono::seconds(5);
/// etcd takes objects of 1.5 MiB; an event wraps one.
constexpr std::size_t kMostOfAnEvent = 4U << 20U;

Instant now() { return std::chrono::steady_clock::now(); }

/// RFC 3986: what is not unreserved, as %XX.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string pods_url(const ApiServerOptions& options) {
  return fmt::format("{}/api/v1/pods?fieldSelector=spec.nodeName%3D{}", options.url,
                     escaped(options.node_name));
}

/// What a person should do about an answer that is not 200.
Error refusal(const ApiServerOptions& options, const HttpAnswer& answer) {
  if (answer.status == kUnauthorized) {
    return unauthorized(options, answer);
  }
  if (answer.status == kForbidden) {
    return {
        fmt::format("{} does not let us see the pods of node {} (403){}; allow get, list and "
                    "watch of pods to the agent's service account, by a ClusterRole and its "
                    "ClusterRoleBinding",
                    options.url, options.node_name, said_by(answer))};
  }
  return {fmt::format("{} answers {}{}", options.url, answer.status, said_by(answer))};
}

struct Listed {
  std::optional<ListedPods> pods;
  HttpAnswer answer;
  std::size_t bytes = 0;
};

Result<Listed> list(HttpClient& http, const ApiServerOptions& options, const std::string& version) {
  HttpRequest request;
  request.url = fmt::format("{}&resourceVersion={}", pods_url(options), escaped(version));
  request.idle_timeout = options.list_timeout;
  request.total_timeout = options.list_timeout;
  std::string body;
  auto answer = ask_api(http, options, std::move(request), [&](std::string_view bytes) {
    body.append(bytes);
    return body.size() <= kMostOfAList;
  });
  if (!answer) {
    return tl::unexpected<Error>(answer.error());
  }
  Listed out;
  out.bytes = body.size();
  out.answer = std::move(*answer);
  if (out.answer.status != kOk) {
    return out;
  }
  auto parsed = parse_pod_list(body);
  if (!parsed) {
    return tl::unexpected<Error>(parsed.error().within(options.url));
  }
  out.pods = std::move(*parsed);
  return out;
}

/// The lines of a stream that comes in pieces.
class Lines {
 public:
  /// False: a line is longer than an event can be.
  bool add(std::string_view bytes, const std::function<void(std::string_view)>& on_line) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      begun_.append(bytes.substr(0, end));
      if (begun_.size() > kMostOfAnEvent) {
        return false;
      }
      if (end == std::string_view::npos) {
        return true;
      }
      if (!begun_.empty()) {
        on_line(begun_);
      }
      begun_.clear();
      bytes.remove_prefix(end + 1);
    }
    return true;
  }

 private:
  std::string begun_;
};

class Follower final : public PodWorker {
 public:
  Follower(ApiServerOptions options, std::unique_ptr<HttpClient> http)
      : PodWorker("api", options.url, options.node_name,
                  fmt::format("{} has not answered yet", options.url)),
        options_(std::move(options)),
        http_(std::move(http)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Follower() override {
    http_->interrupt();
    thread_.join();
  }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;
  Follower(Follower&&) = delete;
  Follower& operator=(Follower&&) = delete;

 private:
  /// Both: what to do next is in version_ and must_list_.
  void run() {
    while (!http_->interrupted()) {
      const Result<> done = must_list_ ? list_now() : watch_now();
      if (done || http_->interrupted()) {
        continue;
      }
      ++failures_;
      tell(done.error().message);
      const Duration wait = std::max(backoff(options_, failures_, options_.chance()), retry_after_);
      retry_after_ = {};
      (void)http_->sleep(wait);
    }
  }

  Result<> list_now() {
    count(&PodSourceStatus::lists);
    auto listed = list(*http_, options_, version_);
    if (!listed) {
      return tl::unexpected<Error>(listed.error());
    }
    if (!listed->pods) {
      retry_after_ = listed->answer.retry_after.value_or(Duration::zero());
      // The version is not to be had: too old, or newer than what the server (restored from a copy)
      // has. Whatever its cache holds is then the best there is.
      if (listed->answer.status == kGone || listed->answer.status == kGatewayTimeout) {
        version_ = "0";
      }
      return tl::unexpected<Error>(refusal(options_, listed->answer));
    }
    for (const std::string& problem : listed->pods->problems) {
      log::write_once(log::Level::kWarn, "api pod", problem, "a pod was left out",
                      {{"reason", problem}});
    }
    version_ = std::move(listed->pods->resource_version);
    working_ = std::move(listed->pods->pods);
    must_list_ = false;
    listed_at_ = now();
    failures_ = 0;
    change_status([&](PodSourceStatus& status) {
      status.received_bytes += listed->bytes;
      status.synced = true;
      status.problem.clear();
    });
    log::info("pods listed", {{"node", options_.node_name},
                              {"pods", working_.by_uid().size()},
                              {"bytes", listed->bytes},
                              {"version", version_}});
    publish_working();
    return {};
  }

  Result<> watch_now() {
    count(&PodSourceStatus::watches);
    const Duration lasts =
        std::chrono::duration_cast<Duration>(options_.watch_time * (1 + options_.chance()));
    HttpRequest request;
    // Whole seconds: 0 would mean the server's own choice.
    request.url = fmt::format(
        "{}&watch=true&allowWatchBookmarks=true&resourceVersion={}"
        "&timeoutSeconds={:.0f}",
        pods_url(options_), escaped(version_), std::max(1.0, std::ceil(seconds(lasts))));
    request.idle_timeout = options_.watch_silence;
    request.total_timeout = lasts + options_.watch_silence;
    Lines lines;
    ended_by_ = {};
    bool heard = false;
    bool expired = false;
    auto answer = ask_api(*http_, options_, std::move(request), [&](std::string_view bytes) {
      bool changed = false;
      const bool sound = lines.add(
          bytes, [&](std::string_view line) { changed = take(line, expired) || changed; });
      if (!sound) {
        ended_by_ = Error{"an event is longer than any object can be"};
        must_list_ = true;
      }
      heard = true;
      failures_ = 0;
      note_heard();
      change_status([&](PodSourceStatus& status) {
        status.received_bytes += bytes.size();
        status.problem.clear();
      });
      if (changed) {
        publish_working();
      }
      return sound && !ended_by_;
    });
    if (ended_by_) {
      return expired ? relist() : tl::unexpected<Error>(std::move(*ended_by_));
    }
    if (!answer) {
      return tl::unexpected<Error>(answer.error());
    }
    if (answer->status == kGone) {
      return relist();
    }
    if (answer->status != kOk) {
      retry_after_ = answer->retry_after.value_or(Duration::zero());
      return tl::unexpected<Error>(refusal(options_, *answer));
    }
    // The server ended it in order. One that does so at once, again and again, is not asked in a
    // tight loop.
    if (!heard) {
      note_heard();
      (void)http_->sleep(options_.backoff_first);
    }
    return {};
  }

  /// 410: the version is older than what the server remembers. That is normal after a long break,
  /// and the list is asked for at once; the version, as "not older than", keeps time from going
  /// back.
  Result<> relist() {
    must_list_ = true;
    count(&PodSourceStatus::expired);
    if (now() - listed_at_ < kJustNow) {
      version_ = "0";
      return fail(
          fmt::format("{} calls the version that it has just listed too old", options_.url));
    }
    return {};
  }

  /// One event; true: it changes the list. `expired`: it says that the version is too old.
  bool take(std::string_view line, bool& expired) {
    if (ended_by_) {
      return false;
    }
    auto event = parse_pod_event(line);
    if (!event) {
      // An event that cannot be read may have been a change: only a list tells.
      ended_by_ = event.error();
      must_list_ = true;
      return false;
    }
    if (event->kind != PodEvent::Kind::kError) {
      listed_at_ = Instant{};
    }
    switch (event->kind) {
      case PodEvent::Kind::kError:
        ended_by_ = Error{
            fmt::format("{} ends the watch ({}): {}", options_.url, event->code, event->message)};
        expired = event->code == kGone;
        must_list_ = true;
        return false;
      case PodEvent::Kind::kBookmark:
        version_ = std::move(event->resource_version);
        count(&PodSourceStatus::bookmarks);
        return false;
      case PodEvent::Kind::kRemoved: working_.remove(event->pod.uid); break;
      case PodEvent::Kind::kPut: working_.put(std::move(event->pod)); break;
    }
    version_ = std::move(event->resource_version);
    count(&PodSourceStatus::events);
    return true;
  }

  void publish_working() { publish(std::make_shared<const PodList>(working_)); }

  void count(std::uint64_t PodSourceStatus::*counter) {
    change_status([&](PodSourceStatus& status) { ++(status.*counter); });
  }

  void tell(const std::string& problem) {
    change_status([&](PodSourceStatus& status) {
      ++status.errors;
      status.problem = problem;
    });
    log::write_once(log::Level::kWarn, "api server", problem, "pods are not followed",
                    {{"reason", problem}, {"known", working_.by_uid().size()}});
  }

  const ApiServerOptions options_;
  const std::unique_ptr<HttpClient> http_;

  // Of the thread alone.
  PodList working_;
  std::string version_ = "0";
  bool must_list_ = true;
  Instant listed_at_{};    ///< where nothing has come since
  unsigned failures_ = 0;  ///< in a row
  Duration retry_after_{};
  std::optional<Error> ended_by_;  ///< why the stream was cut

  std::thread thread_;  ///< last: it uses all above
};

}  // namespace

Result<ApiServerOptions> find_api_server(const std::string& url, const std::string& node_name,
                                         const std::string& service_account,
                                         const std::function<const char*(const char*)>& getenv) {
  const auto variable = [&](const char* name) {
    const char* value = getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  ApiServerOptions out;
  if (url == "auto") {
    std::string host = variable("KUBERNETES_SERVICE_HOST");
    const std::string port = variable("KUBERNETES_SERVICE_PORT");
    if (host.empty() || port.empty()) {
      return fail(
          "KUBERNETES_SERVICE_HOST is not set, so this is no pod; give the server's address by "
          "--kubernetes.api-server, or none");
    }
    host = host.find(':') != std::string::npos ? "[" + host + "]" : host;
    out.url = fmt::format("https://{}:{}", host, port);
  } else {
    out.url = url;
    while (out.url.ends_with('/')) {
      out.url.pop_back();
    }
    if (!out.url.starts_with("https://") && !out.url.starts_with("http://")) {
      return fail(
          fmt::format("--kubernetes.api-server: '{}' is no URL; allowed: auto, none, or "
                      "https://HOST:PORT",
                      url));
    }
  }
  out.node_name = node_name.empty() ? variable("NODE_NAME") : node_name;
  if (out.node_name.empty()) {
    return fail(
        "the name of this node is not known; give it by --kubernetes.node-name or the environment "
        "variable NODE_NAME (in a pod from fieldRef spec.nodeName)");
  }
  const auto file = [&](const char* name) {
    std::string path = fmt::format("{}/{}", service_account, name);
    return read_small_file(path) ? path : std::string();
  };
  if (!service_account.empty()) {
    out.token_file = file("token");
    out.ca_file = file("ca.crt");
  }
  if (url == "auto" && (out.token_file.empty() || out.ca_file.empty())) {
    return fail(
        fmt::format("no token and ca.crt of a service account in {}: is "
                    "automountServiceAccountToken false?",
                    service_account));
  }
  return out;
}

Duration backoff(const ApiServerOptions& options, unsigned failures, double chance) {
  Duration wait = options.backoff_first;
  for (unsigned i = 1; i < failures && wait < options.backoff_most; ++i) {
    wait *= 2;
  }
  wait = std::min(wait, options.backoff_most);
  return std::chrono::duration_cast<Duration>(wait * (0.5 + 0.5 * chance));
}

Result<std::unique_ptr<PodSource>> ApiPods::start(ApiServerOptions options) {
  auto http = HttpClient::create();
  if (!http) {
    return tl::unexpected<Error>(http.error());
  }
  return std::unique_ptr<PodSource>(new Follower(std::move(options), std::move(*http)));
}

Result<PodsPtr> ApiPods::list_once(const ApiServerOptions& options) {
  auto http = HttpClient::create();
  if (!http) {
    return tl::unexpected<Error>(http.error());
  }
  auto listed = list(**http, options, "0");
  if (!listed) {
    return tl::unexpected<Error>(listed.error());
  }
  if (!listed->pods) {
    return tl::unexpected<Error>(refusal(options, listed->answer));
  }
  return std::make_shared<const PodList>(std::move(listed->pods->pods));
}

}  // namespace headgate
