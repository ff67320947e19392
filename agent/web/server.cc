// SPDX-License-Identifier: Apache-2.0
#include "agent/web/server.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/web/health.h"
#include "agent/web/http_server.h"
#include "agent/web/metrics.h"
#include "agent/web/page.h"
#include "agent/web/state_json.h"

namespace headgate {
namespace {

using web::HttpRequest;
using web::HttpResponse;

constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

std::string json_error(std::string_view message) {
  const nlohmann::json object{{"schema", web::kStateSchema}, {"error", message}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// A page of another site may make a browser post here; it cannot choose the Origin that goes with
/// it (RFC 6454, section 7). Programs such as curl send none.
bool comes_from_elsewhere(const HttpRequest& request) {
  if (!request.origin) {
    return false;
  }
  const auto scheme = request.origin->find("://");
  return scheme == std::string_view::npos || request.origin->substr(scheme + 3) != request.host;
}

class Pages {
 public:
  Pages(SnapshotSource& source, const WebServer::Options& options)
      : source_(source), options_(options) {}

  [[nodiscard]] HttpResponse answer(const HttpRequest& request) {
    if (request.path == "/-/reload") {
      return request.method == "POST" || request.method == "PUT" ? reload(request)
                                                                 : only("Allow: POST, PUT\r\n");
    }
    const auto page = find(request.path);
    if (page == nullptr) {
      return {404, "there is no such page; / lists those that exist\n"};
    }
    if (request.method != "GET" && request.method != "HEAD") {
      return only("Allow: GET, HEAD\r\n");
    }
    return (this->*page)(request);
  }

 private:
  using Page = HttpResponse (Pages::*)(const HttpRequest&);

  static Page find(std::string_view path) {
    static constexpr std::array<std::pair<std::string_view, Page>, 8> kPages{{
        {"/", &Pages::index},
        {"/metrics", &Pages::metrics},
        {"/healthz", &Pages::healthz},
        {"/readyz", &Pages::readyz},
        {"/config", &Pages::config},
        {"/api/v1/state", &Pages::state},
        {"/debug/targets", &Pages::targets},
        {"/debug/decisions", &Pages::decisions},
    }};
    for (const auto& [name, page] : kPages) {
      if (name == path) {
        return page;
      }
    }
    return nullptr;
  }

  static HttpResponse only(std::string_view allow) {
    return {405, "this method is not allowed here\n", "text/plain; charset=utf-8", allow};
  }
  static HttpResponse too_early() {
    return {503, json_error("the first tick has not run yet"), kJsonType};
  }

  HttpResponse index(const HttpRequest&) {
    static const std::string policy =
        fmt::format("Content-Security-Policy: {}\r\n", web::status_page_policy());
    return {200, std::string(web::status_page()), "text/html; charset=utf-8", policy};
  }

  HttpResponse metrics(const HttpRequest&) {
    const SnapshotPtr snapshot = source_.snapshot();
    return snapshot ? HttpResponse{200, web::to_metrics(*snapshot), kMetricsType}
                    : HttpResponse{503, "the first tick has not run yet\n"};
  }

  HttpResponse healthz(const HttpRequest&) {
    return source_.alive() ? HttpResponse{200, "ok\n"}
                           : HttpResponse{503, "the loop does not tick\n"};
  }

  HttpResponse readyz(const HttpRequest& request) {
    const SnapshotPtr snapshot = source_.snapshot();
    const auto checks = web::readiness(snapshot.get());
    return {web::is_ready(checks) ? 200 : 503,
            web::to_text(checks, web::query_value(request.query, "verbose").has_value())};
  }

  HttpResponse config(const HttpRequest&) {
    return {200, options_.effective_config ? options_.effective_config() : std::string(),
            "application/yaml"};
  }

  HttpResponse state(const HttpRequest&) {
    const SnapshotPtr snapshot = source_.snapshot();
    return snapshot ? HttpResponse{200, web::to_state_json(*snapshot) + "\n", kJsonType}
                    : too_early();
  }

  HttpResponse targets(const HttpRequest&) {
    const SnapshotPtr snapshot = source_.snapshot();
    return snapshot ? HttpResponse{200, web::to_targets_json(*snapshot), kJsonType} : too_early();
  }

  HttpResponse decisions(const HttpRequest& request) {
    const SnapshotPtr snapshot = source_.snapshot();
    if (!snapshot) {
      return too_early();
    }
    const std::string target = web::query_value(request.query, "target").value_or("");
    auto body = web::to_decisions_json(*snapshot, target);
    if (!body) {
      return {404, json_error(fmt::format("no target is named '{}'", target)), kJsonType};
    }
    return {200, std::move(*body), kJsonType};
  }

  HttpResponse reload(const HttpRequest& request) {
    if (comes_from_elsewhere(request)) {
      return {403, "a page of another site may not reload the configuration\n"};
    }
    if (!options_.reload) {
      return {503, "reload is not available\n"};
    }
    if (const auto done = options_.reload(); !done) {
      return {500, "the configuration before stays in force: " + done.error().message + "\n"};
    }
    return {200, "reloaded\n"};
  }

  SnapshotSource& source_;
  const WebServer::Options& options_;
};

class PagesServer final : public WebServer {
 public:
  PagesServer(SnapshotSource& source, Options options)
      : options_(std::move(options)), pages_(source, options_) {}

  Result<void> start() {
    const web::HttpServer::Limits limits{options_.client_timeout, options_.connections_max, 16384};
    auto server = web::HttpServer::start(
        options_.listen_address,
        [this](const HttpRequest& request) { return pages_.answer(request); }, limits);
    if (!server) {
      return tl::unexpected<Error>(server.error());
    }
    server_ = std::move(*server);
    return {};
  }
  [[nodiscard]] std::uint16_t port() const override { return server_->port(); }

 private:
  Options options_;
  Pages pages_;
  std::unique_ptr<web::HttpServer> server_;  // last: its thread uses the above
};

}  // namespace

Result<std::unique_ptr<WebServer>> WebServer::start(SnapshotSource& source, Options options) {
  auto server = std::make_unique<PagesServer>(source, std::move(options));
  if (auto started = server->start(); !started) {
    return tl::unexpected<Error>(started.error());
  }
  return server;
}

}  // namespace headgate
