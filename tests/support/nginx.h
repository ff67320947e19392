// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "tests/support/net_lab.h"

namespace headgate::lab {

constexpr const char* kNginx = "/usr/sbin/nginx";

/// The directory of an nginx that listens on port 8080, with its configuration: it goes with the
/// object.
class NginxDirectory {
 public:
  /// `main`: directives beside the usual ones; `locations`: what it answers to what.
  NginxDirectory(std::string_view main, std::string_view locations) {
    std::string name = (std::filesystem::temp_directory_path() / "headgate-nginx-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw SetupError("mkdtemp");
    }
    path_ = name;
    std::ofstream(path_ / "nginx.conf") << fmt::format(
        "worker_processes 1;\ndaemon off;\npid nginx.pid;\n{}\n"
        "events {{ worker_connections 512; }}\n"
        "http {{\n  access_log off;\n  client_body_temp_path body;\n"
        "  keepalive_requests 100000000;\n"
        "  server {{\n    listen 8080;\n{}\n  }}\n}}\n",
        main, locations);
  }
  NginxDirectory(const NginxDirectory&) = delete;
  NginxDirectory& operator=(const NginxDirectory&) = delete;
  ~NginxDirectory() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  [[nodiscard]] std::vector<std::string> command() const {
    return {kNginx, "-p", path_.string(), "-c", (path_ / "nginx.conf").string()};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headgate::lab
