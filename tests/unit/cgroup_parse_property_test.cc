// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a file holds, a parser returns a number in its documented range or a reason.
#include <rapidcheck.h>

#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/cgroup/parse.h"

namespace headgate {
namespace {

/// Random bytes, and texts made of the pieces that the real files consist of: those get further.
rc::Gen<std::string> texts() {
  const auto piece = rc::gen::element<std::string>(
      "max", "100000", "0", "-1", "9223372036854771712", "18446744073709551615", "4294967296", " ",
      "\n", ",", "-", ":", "/", "some ", "full ", "total=", "usage_usec ", "nr_periods ",
      "nr_throttled ", "throttled_usec ", "throttled_time ", "inactive_file ",
      "total_inactive_file ", "oom_kill ", "cgroup2 ", "cgroup ", "- ", "\\040", "\\", "net:[", "]",
      "\t", "7", "65535");
  const auto joined = rc::gen::map(rc::gen::container<std::vector<std::string>>(piece),
                                   [](const std::vector<std::string>& pieces) {
                                     std::string text;
                                     for (const auto& p : pieces) {
                                       text += p;
                                     }
                                     return text;
                                   });
  return rc::gen::oneOf(rc::gen::arbitrary<std::string>(), joined);
}

template <class T>
void in_range(const Measured<T>& m, bool good) {
  if (m.known()) {
    RC_ASSERT(good);
  } else {
    RC_ASSERT(m.reason == Unknown::kParse || m.reason == Unknown::kAbsent ||
              m.reason == Unknown::kNoLimit);
  }
}

RC_GTEST_PROP(CgroupParsers, ReturnANumberInRangeOrAReason, ()) {
  const auto text = *texts();
  const auto other = *texts();
  const auto cores = parse_cpu_max(text);
  in_range(cores, std::isfinite(cores.value_or(1)) && cores.value_or(1) > 0);
  const auto cfs = parse_cfs(text, other);
  in_range(cfs, std::isfinite(cfs.value_or(1)) && cfs.value_or(1) > 0);
  const auto cpus = parse_cpu_list(text);
  in_range(cpus, cpus.value_or(1) > 0 && cpus.value_or(1) <= 65536);
  const auto bytes = parse_memory_limit(text);
  in_range(bytes, bytes.value_or(1) > 0 && bytes.value_or(1) < 0x7fff'ffff'ffff'0000ULL);
  for (const auto version : {CgroupVersion::kV1, CgroupVersion::kV2}) {
    const auto stat = parse_cpu_stat(text, version);
    for (const auto& m : {stat.usage_ns, stat.periods, stat.throttled_periods, stat.throttled_ns,
                          parse_inactive_file(text, version)}) {
      in_range(m, true);
    }
  }
  in_range(parse_number(text), true);
  in_range(parse_keyed(text, "oom_kill"), true);
  in_range(parse_pressure_some_us(text), true);
  if (const auto line = parse_proc_cgroup_line(text)) {
    RC_ASSERT(!line->path.empty() && line->path.front() == '/');
    RC_ASSERT(line->controllers.find(':') == std::string_view::npos);
  }
  if (const auto mount = parse_mountinfo_line(text)) {
    RC_ASSERT(mount->version != CgroupVersion::kNone);
    RC_ASSERT(mount->root.front() == '/' && mount->mount_point.front() == '/');
  }
  (void)parse_netns_link(text);
}

RC_GTEST_PROP(CgroupParsers, ReadBackWhatTheKernelPrints, ()) {
  const auto quota = *rc::gen::inRange<std::int64_t>(1000, 1'000'000'000'000);
  const auto period = *rc::gen::inRange<std::int64_t>(1000, 1'000'001);
  const double cores = static_cast<double>(quota) / static_cast<double>(period);
  RC_ASSERT(*parse_cpu_max(std::to_string(quota) + " " + std::to_string(period) + "\n") == cores);
  RC_ASSERT(*parse_cfs(std::to_string(quota) + "\n", std::to_string(period) + "\n") == cores);
  const auto number = *rc::gen::arbitrary<std::uint64_t>();
  RC_ASSERT(*parse_number(std::to_string(number) + "\n") == number);
}

RC_GTEST_PROP(CgroupParsers, CountTheCpusOfAnyListAsTheKernelPrintsIt, ()) {
  const auto gaps = *rc::gen::container<std::vector<std::pair<unsigned, unsigned>>>(
      rc::gen::pair(rc::gen::inRange(0U, 8U), rc::gen::inRange(1U, 9U)));
  std::string text;
  unsigned next = 0;
  unsigned count = 0;
  for (const auto& [gap, length] : gaps) {
    const unsigned first = next + gap;
    const unsigned last = first + length - 1;
    text += (text.empty() ? "" : ",") + std::to_string(first) +
            (length > 1 ? "-" + std::to_string(last) : "");
    next = last + 1;
    count += length;
  }
  const auto parsed = parse_cpu_list(text + "\n");
  if (count == 0) {
    RC_ASSERT(parsed.reason == Unknown::kAbsent && !parsed.known());
  } else {
    RC_ASSERT(parsed.value_or(0) == count);
  }
}

}  // namespace
}  // namespace headgate
