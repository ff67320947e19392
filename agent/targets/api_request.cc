// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/api_request.h"

#include <utility>

#include <fmt/format.h>

#include "agent/targets/pod_list.h"
#include "agent/targets/proc.h"

namespace headgate {
namespace {

Result<std::string> read_token(const ApiServerOptions& options) {
  if (options.token_file.empty()) {
    return std::string();
  }
  auto token = read_small_file(options.token_file);
  if (!token) {
    return tl::unexpected<Error>(token.error().within("token of the service account"));
  }
  while (!token->empty() && (token->back() == '\n' || token->back() == ' ')) {
    token->pop_back();
  }
  return token;
}

}  // namespace

Result<HttpAnswer> ask_api(HttpClient& http, const ApiServerOptions& options, HttpRequest request,
                           const std::function<bool(std::string_view)>& on_data) {
  auto token = read_token(options);
  if (!token) {
    return tl::unexpected<Error>(token.error());
  }
  request.bearer_token = std::move(*token);
  request.ca_file = options.ca_file;
  request.connect_timeout = options.connect_timeout;
  return http.ask(request, on_data);
}

std::string said_by(const HttpAnswer& answer) {
  const std::string message = status_message(answer.body);
  return message.empty() ? message : ": " + message;
}

Error unauthorized(const ApiServerOptions& options, const HttpAnswer& answer) {
  const std::string said = said_by(answer);
  return options.token_file.empty()
             ? Error{fmt::format("{} wants a token, and there is none (401){}", options.url, said)}
             : Error{fmt::format("{} does not accept the token of {} (401){}; is it of this "
                                 "cluster?",
                                 options.url, options.token_file, said)};
}

}  // namespace headgate
