// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace headgate::e2e {

/// One protected run of deploy/demo/run with these options, as a user would start it.
struct DemoRun {
  nlohmann::json figures;  ///< as the demo writes them; null: it could not be run at all
  std::string log;

  [[nodiscard]] bool saved() const { return verdict() == "saved"; }
  [[nodiscard]] std::string verdict() const {
    return figures.is_object() ? figures.value("verdict", "") : "";
  }
  [[nodiscard]] nlohmann::json phase(const std::string& name) const {
    for (const auto& one : figures["with"].value("phases", nlohmann::json::array())) {
      if (one.value("name", "") == name) {
        return one;
      }
    }
    return nlohmann::json::object();
  }
};

inline DemoRun run_demo_once(const std::string& options) {
  const auto directory =
      std::filesystem::temp_directory_path() / fmt::format("headgate-e2e-demo-{}", ::getpid());
  std::filesystem::create_directories(directory);
  const std::string json = (directory / "figures.json").string();
  const std::string text = (directory / "log").string();
  const std::string command = fmt::format(
      "{} --skip-setup --skip-build --only protected --demo-binary {} --headgate {} --json {} "
      "--out {} {} > {} 2>&1",
      HEADGATE_DEMO_RUN, HEADGATE_DEMO_BINARY, HEADGATE_BINARY, json,
      (directory / "page.html").string(), options, text);
  (void)!std::system(command.c_str());  // NOLINT: a fixed command; the figures are judged
  DemoRun out;
  std::ifstream log_file(text);
  out.log.assign(std::istreambuf_iterator<char>(log_file), {});
  std::ifstream figures(json);
  out.figures = nlohmann::json::parse(figures, nullptr, false);
  std::filesystem::remove_all(directory);
  if (out.figures.is_discarded()) {
    out.figures = nullptr;
  }
  return out;
}

/// The promises are timings, and the machine may be busy with something else for a moment: where
/// one was not kept, once more.
inline DemoRun run_demo(const std::string& options) {
  DemoRun out = run_demo_once(options);
  return out.saved() ? out : run_demo_once(options);
}

}  // namespace headgate::e2e
