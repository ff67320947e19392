// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate {

struct HttpRequest {
  std::string url;
  std::string unix_socket;                  ///< "": the address of the URL
  std::optional<std::string> grpc_message;  ///< POST it, framed, as a unary call of gRPC
  std::optional<std::string> json;          ///< POST it
  std::string bearer_token;                 ///< "": none; never sent without TLS but to loopback
  std::string ca_file;  ///< who may sign the server's certificate; "": whom the machine trusts
  Duration connect_timeout = std::chrono::seconds(10);
  Duration idle_timeout = std::chrono::seconds(30);  ///< longest silence, from the start on
  Duration total_timeout = std::chrono::seconds(60);
};

struct HttpAnswer {
  long status = 0;
  std::string body;  ///< of an answer that is not 200: what was read of it, at most 64 KiB
  std::optional<Duration> retry_after;
  std::optional<int> grpc_status;  ///< of the trailers; 0 = OK
  std::string grpc_message;
};

/// GET and POST over HTTP/1.1, and unary gRPC over HTTP/2 without TLS, by libcurl, one request at a
/// time; TLS is always verified, redirects are not followed, no proxy is used. Belongs to one
/// thread; only interrupt() may be called from others.
class HttpClient {
 public:
  [[nodiscard]] static Result<std::unique_ptr<HttpClient>> create();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  HttpClient(HttpClient&&) = delete;
  HttpClient& operator=(HttpClient&&) = delete;

  /// Blocks until the answer has ended. `on_data` gets the body of a 200 piece by piece; false ends
  /// the request in order. Errors: no answer, or one that broke off; of the message a person learns
  /// with whom and why.
  [[nodiscard]] Result<HttpAnswer> ask(const HttpRequest& request,
                                       const std::function<bool(std::string_view)>& on_data);
  /// The request under way ends with an error at once, and so do all further ones.
  void interrupt();
  [[nodiscard]] bool interrupted() const;
  /// Waits for so long; false: was interrupted.
  [[nodiscard]] bool sleep(Duration duration);

 private:
  struct Curl;
  explicit HttpClient(std::unique_ptr<Curl> curl);
  std::unique_ptr<Curl> curl_;
};

}  // namespace headgate
