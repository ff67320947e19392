// SPDX-License-Identifier: Apache-2.0
// What every file of the repository has in common: a licence, and nothing of the machine that it
// was written on.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/source_tree.h"

namespace headgate {
namespace {

using source_tree::File;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

bool needs_licence(const File& file) {
  return source_tree::is_cpp(file.path) || file.path.ends_with(".cmake") ||
         file.path.ends_with("CMakeLists.txt") || file.path.ends_with(".service") ||
         file.path.ends_with("Dockerfile") || file.text.starts_with("#!");
}

/// The identifier of each tree: the agent, the kernel programs, and the header that both share.
std::string_view licence_of(std::string_view path) {
  if (path == "include/headgate/bpf_abi.h") {
    return "Apache-2.0 OR GPL-2.0-only";
  }
  return path.starts_with("bpf/") && !path.ends_with("CMakeLists.txt")
             ? "GPL-2.0-only OR BSD-2-Clause"
             : "Apache-2.0";
}

/// Empty, or what is wrong. The identifier is in the first line; below "#!" in scripts.
std::string licence_problem(const File& file) {
  const std::vector<std::string> lines = source_tree::lines(file.text);
  const std::size_t at = file.text.starts_with("#!") ? 1 : 0;
  static const std::regex pattern(R"re(SPDX-License-Identifier: (.*?)( \*/)?$)re");
  std::smatch match;
  if (lines.size() <= at || !std::regex_search(lines[at], match, pattern)) {
    return file.path + ": no SPDX-License-Identifier in line " + std::to_string(at + 1);
  }
  if (match[1].str() != licence_of(file.path)) {
    return file.path + ": licence is " + match[1].str() + ", expected " +
           std::string(licence_of(file.path));
  }
  return {};
}

/// Addresses that must come from the user's own configuration, and paths of one machine. Written in
/// two halves, or this file would find itself.
constexpr std::array<std::string_view, 11> kForeign = {
    "/tmp/"
    "hg/",
    "deb.deb"
    "ian.org",
    "security.deb"
    "ian.org",
    "snapshot.deb"
    "ian.org",
    "archive.deb"
    "ian.org",
    "ftp.deb"
    "ian.org",
    "registry.npm"
    "js.org",
    "pypi"
    ".org",
    "proxy.gol"
    "ang.org",
    "repo.mav"
    "en",
    "repo1.mav"
    "en",
};

/// A directory of one machine: only as the first part of a path.
bool names_work_directory(std::string_view line) {
  constexpr std::string_view kDirectory =
      "/wo"
      "rk/";
  for (std::size_t at = line.find(kDirectory); at != std::string_view::npos;
       at = line.find(kDirectory, at + 1)) {
    const char before = at == 0 ? ' ' : line[at - 1];
    if (std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_' && before != '.' &&
        before != '-' && before != '/') {
      return true;
    }
  }
  return false;
}

std::vector<std::string> foreign_words(const File& file) {
  std::vector<std::string> found;
  std::size_t number = 0;
  for (const std::string& line : source_tree::lines(file.text)) {
    ++number;
    const bool foreign = std::ranges::any_of(
        kForeign, [&](std::string_view word) { return line.find(word) != std::string::npos; });
    if (foreign || names_work_directory(line)) {
      found.push_back(file.path + ":" + std::to_string(number) + ": " + line.substr(0, 200));
    }
  }
  return found;
}

TEST(Hygiene, EverySourceStatesItsLicenceFirst) {
  std::vector<std::string> found;
  for (const File& file : source_tree::read(HEADGATE_SOURCE_DIR)) {
    if (needs_licence(file)) {
      if (std::string problem = licence_problem(file); !problem.empty()) {
        found.push_back(std::move(problem));
      }
    }
  }
  EXPECT_THAT(found, IsEmpty());
}

TEST(Hygiene, EveryLicenceNamedIsInTheRepository) {
  const std::filesystem::path licences = std::filesystem::path(HEADGATE_SOURCE_DIR) / "LICENSES";
  for (const char* name : {"Apache-2.0", "GPL-2.0-only", "BSD-2-Clause"}) {
    EXPECT_GT(std::filesystem::file_size(licences / (std::string(name) + ".txt")), 1000U) << name;
  }
}

TEST(Hygiene, NoFileNamesAMachineOrAPackageArchive) {
  std::vector<std::string> found;
  for (const File& file : source_tree::read(HEADGATE_SOURCE_DIR)) {
    for (std::string& one : foreign_words(file)) {
      found.push_back(std::move(one));
    }
  }
  EXPECT_THAT(found, IsEmpty());
}

TEST(HygieneCheck, AMissingOrForeignLicenceIsFound) {
  EXPECT_THAT(licence_problem({"agent/a.cc", "#include <vector>\n"}), HasSubstr("line 1"));
  EXPECT_THAT(licence_problem({"x", "#!/bin/sh\necho\n"}), HasSubstr("line 2"));
  EXPECT_THAT(licence_problem({"bpf/a.bpf.c", "// SPDX-License-Identifier: Apache-2.0\n"}),
              HasSubstr("expected GPL-2.0-only OR BSD-2-Clause"));
  EXPECT_EQ(licence_problem({"agent/a.cc", "// SPDX-License-Identifier: Apache-2.0\n"}), "");
}

TEST(HygieneCheck, AMachinesPathOrArchiveIsFound) {
  EXPECT_THAT(foreign_words({"a",
                             "x\ncd /wo"
                             "rk/x\n"}),
              ElementsAre(HasSubstr("a:2:")));
  EXPECT_THAT(foreign_words({"a",
                             "http://deb.deb"
                             "ian.org/\n"}),
              ElementsAre(HasSubstr("a:1:")));
  EXPECT_THAT(foreign_words({"a",
                             "upperdir=/memory/wo"
                             "rk/x, https://www.debian.org/doc\n"}),
              IsEmpty());
}

}  // namespace
}  // namespace headgate
