// SPDX-License-Identifier: Apache-2.0
// Includes point one way. The rules are the table below; a folder that is not in it is an error, so
// that a new one states where it stands.
#include <map>
#include <optional>
#include <regex>
#include <set>
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

struct Include {
  std::string name;
  bool quoted = false;
};

std::optional<Include> parse_include(const std::string& line) {
  static const std::regex pattern(R"re(^\s*#\s*include\s+(<([^>]+)>|"([^"]+)"))re");
  std::smatch match;
  if (line.find('#') == std::string::npos || !std::regex_search(line, match, pattern)) {
    return std::nullopt;
  }
  return match[2].matched ? Include{match[2].str(), false} : Include{match[3].str(), true};
}

struct Rule {
  /// Folders of ours whose headers may be included; the own folder always may.
  std::set<std::string> sees;
  /// No files, clocks, maps or threads: only the language's own headers and fmt.
  bool pure = false;
};

const std::set<std::string> kEveryAgentFolder = {
    "include/headgate", "agent",         "agent/base",     "agent/config",     "agent/cgroup",
    "agent/targets",    "agent/signals", "agent/decision", "agent/strategies", "agent/dataplane",
    "agent/hooks",      "agent/web",     "agent/cli",      "agent/sim"};

std::set<std::string> with(std::set<std::string> folders, const std::string& one) {
  folders.insert(one);
  return folders;
}

const std::map<std::string, Rule> kRules = {
    {"include/headgate", {.sees = {}, .pure = true}},
    {"agent/signals", {.sees = {"include/headgate"}, .pure = true}},
    {"agent/decision", {.sees = {"include/headgate"}, .pure = true}},
    {"agent/strategies", {.sees = {"include/headgate", "agent/decision"}, .pure = true}},
    {"agent/base", {.sees = {"include/headgate"}}},
    {"agent/config", {.sees = {"include/headgate", "agent/base"}}},
    {"agent/cgroup", {.sees = {"include/headgate", "agent/base", "agent/config"}}},
    {"agent/targets", {.sees = {"include/headgate", "agent/base", "agent/config", "agent/cgroup"}}},
    {"agent/dataplane", {.sees = {"include/headgate", "agent/base", "agent/config"}}},
    {"agent/hooks",
     {.sees = {"include/headgate", "agent/base", "agent/config", "agent/dataplane"}}},
    // The snapshot is what the tick hands to whoever shows it.
    {"agent/web", {.sees = {"include/headgate", "agent/base", "agent/config", "agent"}}},
    // What runs in the simulator is what ships: the laws, and the kernel's verdict.
    {"agent/sim",
     {.sees = {"include/headgate", "agent/base", "agent/config", "agent/signals", "agent/decision",
               "agent/strategies", "bpf/lib"}}},
    // ... and so do the parsers in `classify`.
    {"agent/cli", {.sees = with(kEveryAgentFolder, "bpf/lib")}},
    {"agent", {.sees = kEveryAgentFolder}},
};

/// A library's headers appear only where the library is wrapped.
struct Wrapped {
  std::string_view header_prefix;
  std::set<std::string> places;  ///< folders, or one file
};
const std::vector<Wrapped> kWrapped = {
    {"spdlog/", {"agent/base/log.cc"}},
    {"yaml-cpp/", {"agent/config"}},
    {"CivetServer.h", {"agent/web"}},
    {"prometheus/", {"agent/web"}},
    {"curl/", {"agent/targets/http_client.cc"}},
    {"boost/", {"agent/cli", "agent/main.cc"}},
    // doctor asks the kernel itself what it can do, with nothing of ours in between.
    {"bpf/", {"agent/dataplane", "agent/hooks", "agent/cli/doctor_facts.cc"}},
    {"nlohmann/",
     {"agent/base", "agent/config", "agent/targets/pod_list.cc", "agent/targets/kube_events.cc",
      "agent/web", "agent/cli", "agent"}},
};

/// Headers that bring files, clocks of the machine, chance, threads or sockets.
bool is_impure(std::string_view header) {
  static const std::set<std::string_view> kImpure = {
      "fstream",      "filesystem", "iostream", "cstdio",    "thread", "mutex",
      "shared_mutex", "future",     "atomic",   "random",    "ctime",  "condition_variable",
      "semaphore",    "latch",      "barrier",  "stop_token"};
  return kImpure.contains(header) || header.ends_with(".h") || header.ends_with(".hpp") ||
         (header.find('/') != std::string_view::npos && !header.starts_with("fmt/"));
}

std::vector<std::string> violations(const File& file) {
  std::vector<std::string> found;
  const std::string folder = source_tree::folder(file.path);
  const auto rule = kRules.find(folder);
  if (rule == kRules.end()) {
    return {file.path + ": folder " + folder + " has no rule in tests/unit/layering_test.cc"};
  }
  const std::vector<std::string> lines = source_tree::lines(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string where = file.path + ":" + std::to_string(i + 1) + ": ";
    const std::optional<Include> include = parse_include(lines[i]);
    if (!include) {
      continue;
    }
    if (include->quoted) {
      const std::string path =
          include->name.starts_with("headgate/") ? "include/" + include->name : include->name;
      const std::string target = source_tree::folder(path);
      // A skeleton is generated; it has no folder.
      const bool skeleton = path.ends_with(".skel.h") && folder == "agent/dataplane";
      if (target != folder && !rule->second.sees.contains(target) && !skeleton) {
        found.push_back(where + folder + " may not include \"" + include->name + "\"");
      }
      continue;
    }
    const bool result_header =
        file.path == "include/headgate/result.h" && include->name == "tl/expected.hpp";
    const bool abi_header =
        file.path == "include/headgate/bpf_abi.h" && include->name == "linux/types.h";
    if (rule->second.pure && is_impure(include->name) && !result_header && !abi_header) {
      found.push_back(where + folder + " is pure and may not include <" + include->name + ">");
    }
    if (folder == "include/headgate" && include->name.starts_with("fmt/")) {
      found.push_back(where + "no third-party headers in include/headgate: <" + include->name +
                      ">");
    }
    for (const Wrapped& wrapped : kWrapped) {
      if (include->name.starts_with(wrapped.header_prefix) && !wrapped.places.contains(folder) &&
          !wrapped.places.contains(file.path)) {
        found.push_back(where + "<" + include->name +
                        "> is wrapped elsewhere: " + *wrapped.places.begin());
      }
    }
  }
  // Time enters at the top and travels as a value.
  if (rule->second.pure && file.text.find("_clock::now") != std::string::npos) {
    found.push_back(file.path + ": reads a clock; take the time as an argument");
  }
  return found;
}

/// Kernel programs see the shared contract, their own lib and the kernel's UAPI, nothing else.
std::vector<std::string> bpf_violations(const File& file) {
  std::vector<std::string> found;
  const std::vector<std::string> lines = source_tree::lines(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::optional<Include> include = parse_include(lines[i]);
    if (!include) {
      continue;
    }
    const std::string& name = include->name;
    const bool allowed = include->quoted
                             ? name == "headgate/bpf_abi.h" || name.starts_with("lib/") ||
                                   name.find('/') == std::string::npos
                             : name.starts_with("linux/") || name.starts_with("asm/") ||
                                   name == "bpf/bpf_helpers.h" || name == "bpf/bpf_endian.h";
    if (!allowed) {
      found.push_back(file.path + ":" + std::to_string(i + 1) + ": bpf/ may not include " + name);
    }
  }
  return found;
}

/// Declarations of functions that return Result<...> without [[nodiscard]]: an alias template
/// cannot carry the attribute, so each declaration does.
std::vector<std::string> discardable_results(const File& file) {
  static const std::regex declaration(
      R"re(^\s*((static|virtual|inline|constexpr|friend|explicit|extern)\s+)*Result<)re");
  std::vector<std::string> found;
  const std::vector<std::string> lines = source_tree::lines(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("Result<") == std::string::npos ||
        !std::regex_search(lines[i], declaration)) {
      continue;
    }
    std::string whole = lines[i];
    for (std::size_t j = i + 1; j < lines.size() && whole.find_first_of(";{") == std::string::npos;
         ++j) {
      whole += lines[j];
    }
    const bool is_function = whole.find('(') < whole.find_first_of("=;{");
    const bool attribute_above = i > 0 && lines[i - 1].ends_with("[[nodiscard]]");
    if (is_function && !attribute_above) {
      found.push_back(file.path + ":" + std::to_string(i + 1) + ": no [[nodiscard]]: " + lines[i]);
    }
  }
  return found;
}

const std::vector<File>& tree() {
  static const std::vector<File> files = source_tree::read(HEADGATE_SOURCE_DIR);
  return files;
}

template <class Check>
std::vector<std::string> check_all(std::string_view prefix, Check check) {
  std::vector<std::string> found;
  for (const File& file : tree()) {
    if (file.path.starts_with(prefix) && source_tree::is_cpp(file.path)) {
      for (std::string& one : check(file)) {
        found.push_back(std::move(one));
      }
    }
  }
  return found;
}

TEST(Layering, AgentFoldersIncludeOnlyWhatTheirRuleAllows) {
  EXPECT_THAT(check_all("agent/", violations), IsEmpty());
}

TEST(Layering, TheInterfacesIncludeNoLibraryAndNothingBelowThem) {
  EXPECT_THAT(check_all("include/", violations), IsEmpty());
}

TEST(Layering, KernelProgramsIncludeOnlyTheContractTheirLibAndTheKernel) {
  EXPECT_THAT(check_all("bpf/", bpf_violations), IsEmpty());
}

TEST(Layering, EveryResultOfAHeaderIsNodiscard) {
  std::vector<std::string> found = check_all("agent/", [](const File& file) {
    return file.path.ends_with(".h") ? discardable_results(file) : std::vector<std::string>{};
  });
  for (std::string& one : check_all("include/", discardable_results)) {
    found.push_back(std::move(one));
  }
  EXPECT_THAT(found, IsEmpty());
}

TEST(Layering, TheWholeTreeIsSeen) {
  std::set<std::string> folders;
  for (const File& file : tree()) {
    folders.insert(source_tree::folder(file.path));
  }
  EXPECT_TRUE(folders.contains("include/headgate"));
  EXPECT_TRUE(folders.contains("agent/strategies"));
  EXPECT_TRUE(folders.contains("bpf/lib"));
  EXPECT_FALSE(folders.contains(".git"));
}

// The checks themselves see what they are there for.

TEST(LayeringCheck, APureFolderThatReadsFilesIsFound) {
  EXPECT_THAT(violations({"agent/signals/a.cc", "#include <fstream>\n"}),
              ElementsAre(HasSubstr("agent/signals/a.cc:1: agent/signals is pure")));
  EXPECT_THAT(violations({"agent/signals/a.cc", "#include <vector>\n#include <sys/stat.h>\n"}),
              ElementsAre(HasSubstr("a.cc:2:")));
}

TEST(LayeringCheck, APureFolderThatReadsAClockIsFound) {
  EXPECT_THAT(violations({"agent/decision/a.cc", "auto t = std::chrono::steady_clock::now();\n"}),
              ElementsAre(HasSubstr("reads a clock")));
}

TEST(LayeringCheck, AnIncludeThatPointsUpIsFound) {
  EXPECT_THAT(violations({"agent/config/a.cc", "#include \"agent/web/page.h\"\n"}),
              ElementsAre(HasSubstr("agent/config may not include")));
  EXPECT_THAT(violations({"agent/strategies/a.cc", "#include \"agent/base/log.h\"\n"}),
              ElementsAre(HasSubstr("agent/strategies may not include")));
}

TEST(LayeringCheck, ALibraryOutsideItsWrapperIsFound) {
  EXPECT_THAT(violations({"agent/hooks/a.cc", "#include <spdlog/spdlog.h>\n"}),
              ElementsAre(HasSubstr("wrapped elsewhere: agent/base/log.cc")));
}

TEST(LayeringCheck, AFolderWithoutARuleIsFound) {
  EXPECT_THAT(violations({"agent/extra/a.cc", ""}), ElementsAre(HasSubstr("has no rule")));
}

TEST(LayeringCheck, AnAgentHeaderInAKernelProgramIsFound) {
  EXPECT_THAT(bpf_violations({"bpf/x.bpf.c", "#include \"headgate/units.h\"\n"}),
              ElementsAre(HasSubstr("bpf/x.bpf.c:1:")));
  EXPECT_THAT(bpf_violations({"bpf/x.bpf.c", "#include <linux/bpf.h>\n#include \"lib/maps.h\"\n"}),
              IsEmpty());
}

TEST(LayeringCheck, AResultThatCanBeIgnoredIsFound) {
  EXPECT_THAT(discardable_results({"a.h", "  static Result<Fd> open(int x);\n"}),
              ElementsAre(HasSubstr("a.h:1:")));
  EXPECT_THAT(discardable_results({"a.h", "Result<> apply(int x,\n        int y);\n"}),
              ElementsAre(HasSubstr("a.h:1:")));
  EXPECT_THAT(discardable_results({"a.h", "[[nodiscard]] Result<> apply();\n"}), IsEmpty());
  EXPECT_THAT(discardable_results({"a.h", "[[nodiscard]]\nResult<> apply();\n"}), IsEmpty());
  EXPECT_THAT(discardable_results({"a.h", "  Result<int> last_;\n"}), IsEmpty());
}

}  // namespace
}  // namespace headgate
