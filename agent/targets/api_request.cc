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

Error unauthorized(const ApiServerOptions& options, const HttpAnswer& answer) {
  std::string said = status_message(answer.body);
  said = said.empty() ? std::string() : ": " + said;
  return options.token_file.empty()
             ? Error{fmt::format("{} wants a token, and there is none (401){}", options.url, said)}
             : Error{fmt::format("{} does not accept the token of {} (401){}; is it of this "
                                 "cluster?",
                                 options.url, options.token_file, said)};
}

}  // namespace headgate
