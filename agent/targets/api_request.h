// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "headgate/result.h"

#include "agent/targets/api_server.h"
#include "agent/targets/http_client.h"

namespace headgate {

/// Asks the API server, with a token read afresh (tokens are renewed) and by its authority alone.
/// Errors: no token, no answer. What the answer says is told by its status.
[[nodiscard]] Result<HttpAnswer> ask_api(HttpClient& http, const ApiServerOptions& options,
                                         HttpRequest request,
                                         const std::function<bool(std::string_view)>& on_data);

/// ": " and the message of an answer that is no success; "" = it has none.
[[nodiscard]] std::string said_by(const HttpAnswer& answer);

/// Why an answer is 401, with the remedy.
[[nodiscard]] Error unauthorized(const ApiServerOptions& options, const HttpAnswer& answer);

}  // namespace headgate
