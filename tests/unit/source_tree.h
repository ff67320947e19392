// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace headgate::source_tree {

struct File {
  std::string path;  ///< relative to the top, with '/'
  std::string text;
};

/// Every file of the source tree that is text, in order of path. Not by asking git: the tests also
/// run from an unpacked archive, and what is not added yet is held to the same rules.
inline std::vector<File> read(const std::filesystem::path& top) {
  std::vector<File> files;
  auto at = std::filesystem::recursive_directory_iterator(top);
  for (; at != std::filesystem::recursive_directory_iterator(); ++at) {
    const std::string name = at->path().filename().string();
    // The names of .gitignore, and what git keeps for itself.
    const bool skipped = name == ".git" || name == "out" || name == "build" ||
                         name.starts_with("build-") || name == ".cache";
    if (at->is_directory() && skipped) {
      at.disable_recursion_pending();
    }
    if (!at->is_regular_file() || at->is_symlink() || skipped) {
      continue;
    }
    std::ifstream stream(at->path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.find('\0') == std::string::npos) {
      files.push_back(
          {std::filesystem::relative(at->path(), top).generic_string(), std::move(text)});
    }
  }
  std::ranges::sort(files, {}, &File::path);
  return files;
}

inline std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> result;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    result.push_back(line);
  }
  return result;
}

/// The folder a rule speaks of: "agent/hooks" for agent/hooks/x.cc, "agent" for agent/main.cc.
inline std::string folder(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : path.substr(0, slash));
}

inline bool is_cpp(std::string_view path) {
  return path.ends_with(".cc") || path.ends_with(".h") || path.ends_with(".c");
}

}  // namespace headgate::source_tree
