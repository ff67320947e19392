// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace headgate::web {

/// The status page: one file, nothing loaded from elsewhere; it asks /api/v1/state every two
/// seconds. All that comes from there is put in as text, never as markup.
[[nodiscard]] std::string_view status_page();

/// Content-Security-Policy of the page: nothing but itself, and no framing.
[[nodiscard]] std::string_view status_page_policy();

}  // namespace headgate::web
