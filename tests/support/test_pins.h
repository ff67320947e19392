// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string>

#include "agent/dataplane/bpffs.h"

namespace headgate::test {

/// A pin directory of one's own, gone with the object: links in it are detached, maps unpinned.
class TestPins {
 public:
  TestPins() : directory_(PinDirectory::prepare(next_root())) {}
  TestPins(const TestPins&) = delete;
  TestPins& operator=(const TestPins&) = delete;
  ~TestPins() { directory_.purge(); }
  [[nodiscard]] const PinDirectory& operator*() const { return directory_; }
  [[nodiscard]] const PinDirectory* operator->() const { return &directory_; }

 private:
  static std::string next_root() {
    static int number = 0;
    return "/sys/fs/bpf/headgate-test-" + std::to_string(::getpid()) + "-" +
           std::to_string(++number);
  }
  PinDirectory directory_;
};

}  // namespace headgate::test
