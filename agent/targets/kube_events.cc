// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/kube_events.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/base/log.h"
#include "agent/targets/api_request.h"
#include "agent/targets/http_client.h"
#include "agent/targets/pod_list.h"

namespace headgate {
namespace {

constexpr Duration kAnswerWithin = std::chrono::seconds(10);
/// Between two requests of one node: a hundred pods that tip over at once are no storm.
constexpr Duration kSpacing = std::chrono::milliseconds(200);
// What the server takes: k8s.io/kubernetes pkg/apis/core/validation/events.go, and names of objects
// as DNS subdomains.
constexpr std::size_t kMostNote = 1024;
constexpr std::size_t kMostName = 253;
constexpr std::size_t kMostInstance = 128;

Instant now() { return std::chrono::steady_clock::now(); }

/// metav1.MicroTime.
std::string micro_time(std::int64_t unix_us) {
  const auto seconds = static_cast<std::time_t>(unix_us / 1'000'000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(seconds), unix_us % 1'000'000);
}

/// Cut where no character of UTF-8 is torn.
std::string cut(std::string text, std::size_t most) {
  if (text.size() > most) {
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) {
      --most;
    }
    text.resize(most);
  }
  return text;
}

/// 403 has other causes than a missing right, which pass: a quota of objects, a namespace that is
/// being deleted.
bool lacks_the_right(const HttpAnswer& answer) {
  return answer.status == 403 &&
         status_message(answer.body).find("cannot create resource") != std::string::npos;
}

class Sender final : public KubeEvents {
 public:
  Sender(ApiServerOptions options, OwnPod own, std::unique_ptr<HttpClient> http)
      : options_(std::move(options)), own_(std::move(own)), http_(std::move(http)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Sender() override {
    http_->interrupt();
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  Sender(Sender&&) = delete;
  Sender& operator=(Sender&&) = delete;

  void tell(const std::string& key, KubeEvent event) override {
    {
      const std::lock_guard lock(mutex_);
      if (!status_.off.empty()) {
        return;
      }
      (void)queue_.add(key, std::move(event), now());
    }
    wake_.notify_all();
  }

  void tell_of_own_pod(KubeEvent event) override {
    if (own_.uid.empty()) {
      return;
    }
    event.namespace_name = own_.namespace_name;
    event.pod = own_.name;
    event.uid = own_.uid;
    tell("own pod", std::move(event));
  }

  [[nodiscard]] KubeEventsStatus status() const override {
    const std::lock_guard lock(mutex_);
    KubeEventsStatus out = status_;
    out.merged += queue_.merged();
    out.dropped += queue_.dropped();
    return out;
  }

 private:
  void run() {
    unsigned failures = 0;
    while (const auto due = wait_for_one()) {
      const Outcome outcome = send(*due);
      switch (outcome.kind) {
        case Outcome::Kind::kSent:
        case Outcome::Kind::kNotTaken:
          failures = 0;
          (void)http_->sleep(kSpacing);
          break;
        case Outcome::Kind::kLater:
          ++failures;
          put_back(*due);
          (void)http_->sleep(
              std::max(backoff(options_, failures, options_.chance()), outcome.retry_after));
          break;
        case Outcome::Kind::kNever: return;
      }
    }
  }

  /// Nothing: the end.
  std::optional<EventQueue::Due> wait_for_one() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (auto due = queue_.take(now())) {
        return due;
      }
      if (const auto next = queue_.next()) {
        (void)wake_.wait_until(lock, *next);
      } else {
        wake_.wait(lock);
      }
    }
    return std::nullopt;
  }

  struct Outcome {
    enum class Kind : std::uint8_t { kSent, kNotTaken, kLater, kNever };
    Kind kind = Kind::kLater;
    Duration retry_after{};
  };

  Outcome send(const EventQueue::Due& due) {
    HttpRequest request;
    request.url = fmt::format("{}/apis/events.k8s.io/v1/namespaces/{}/events", options_.url,
                              due.event.namespace_name);
    request.json = to_json(due, options_.node_name);
    request.idle_timeout = request.total_timeout = kAnswerWithin;
    const auto answer = ask_api(*http_, options_, std::move(request), [](auto) { return true; });
    if (!answer) {
      if (!http_->interrupted()) {
        note_error(answer.error().message);
      }
      return {};
    }
    // 409: an attempt before has come through, and its answer has not.
    if ((answer->status >= 200 && answer->status < 300) || answer->status == 409) {
      const std::lock_guard lock(mutex_);
      ++status_.sent;
      return {Outcome::Kind::kSent, {}};
    }
    const std::string said = fmt::format("{} answers {}: {}", options_.url, answer->status,
                                         status_message(answer->body));
    if (lacks_the_right(*answer)) {
      switch_off(said + "; allow create of events.k8s.io/events to the agent's service account");
      return {Outcome::Kind::kNever, {}};
    }
    note_error(answer->status == 401 ? unauthorized(options_, *answer).message : said);
    if (answer->status == 401 || answer->status == 429 || answer->status >= 500) {
      return {Outcome::Kind::kLater, answer->retry_after.value_or(Duration::zero())};
    }
    const std::lock_guard lock(mutex_);
    ++status_.dropped;
    return {Outcome::Kind::kNotTaken, {}};
  }

  void put_back(EventQueue::Due due) {
    const std::lock_guard lock(mutex_);
    queue_.put_back(std::move(due), now());
  }

  void note_error(const std::string& problem) {
    {
      const std::lock_guard lock(mutex_);
      ++status_.errors;
    }
    log::write_once(log::Level::kWarn, "events", problem, "an Event could not be sent",
                    {{"reason", problem}});
  }

  void switch_off(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      ++status_.errors;
      ++status_.dropped;
      status_.off = why;
      status_.merged += queue_.merged();
      status_.dropped += queue_.dropped();
      queue_ = EventQueue();
    }
    log::warn("no Events are sent", {{"reason", why}});
  }

  const ApiServerOptions options_;
  const OwnPod own_;
  const std::unique_ptr<HttpClient> http_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  EventQueue queue_;         ///< guarded by mutex_
  KubeEventsStatus status_;  ///< guarded by mutex_
  bool ends_ = false;        ///< guarded by mutex_
  std::thread thread_;       ///< last: it uses all above
};

}  // namespace

Result<std::unique_ptr<KubeEvents>> KubeEvents::start(ApiServerOptions options, OwnPod own) {
  auto http = HttpClient::create();
  if (!http) {
    return tl::unexpected<Error>(http.error());
  }
  return std::make_unique<Sender>(std::move(options), std::move(own), std::move(*http));
}

std::string to_json(const EventQueue::Due& due, const std::string& node_name) {
  const KubeEvent& event = due.event;
  // As client-go names them: unique, and telling whose it is.
  const std::string suffix = fmt::format(".{:x}", due.last_unix_us * 1000);
  nlohmann::json regarding = {{"apiVersion", "v1"},
                              {"kind", "Pod"},
                              {"namespace", event.namespace_name},
                              {"name", event.pod},
                              {"uid", event.uid}};
  if (!event.container.empty()) {
    regarding["fieldPath"] = fmt::format("spec.containers{{{}}}", event.container);
  }
  nlohmann::json out = {
      {"apiVersion", "events.k8s.io/v1"},
      {"kind", "Event"},
      {"metadata",
       {{"name", cut(event.pod, kMostName - suffix.size()) + suffix},
        {"namespace", event.namespace_name}}},
      {"eventTime", micro_time(event.unix_us)},
      {"reportingController", "headgate"},
      {"reportingInstance", cut(node_name, kMostInstance)},
      {"type", event.warning ? "Warning" : "Normal"},
      {"reason", event.reason},
      {"action", event.action},
      {"note", cut(event.note, kMostNote)},
      {"regarding", std::move(regarding)},
  };
  if (event.times > 1) {
    out["series"] = {{"count", event.times}, {"lastObservedTime", micro_time(due.last_unix_us)}};
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace headgate
