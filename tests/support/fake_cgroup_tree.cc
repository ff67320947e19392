// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cgroup_tree.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace headgate::test {
namespace fs = std::filesystem;
namespace {

void write_file(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

/// A path below `base` even when it is written with a leading '/'.
fs::path below(const std::string& base, const std::string& path) {
  return fs::path(base) / fs::path(path).relative_path();
}

void make_link(const fs::path& path, const std::string& target) {
  fs::create_directories(path.parent_path());
  fs::remove(path);
  fs::create_symlink(target, path);
}

}  // namespace

FakeCgroupTree::FakeCgroupTree() {
  std::string name = (fs::temp_directory_path() / "headgate-tree-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("cannot make " + name);
  }
  base_ = name;
  fs::create_directories(root());
  fs::create_directories(proc_root());
}

FakeCgroupTree::~FakeCgroupTree() {
  std::error_code ignored;
  fs::remove_all(base_, ignored);
}

FakeCgroupTree& FakeCgroupTree::v2() {
  return write("cgroup.controllers", "cpuset cpu io memory pids\n");
}

FakeCgroupTree& FakeCgroupTree::write(const std::string& path, std::string_view text) {
  write_file(below(root(), path), text);
  return *this;
}

FakeCgroupTree& FakeCgroupTree::directory(const std::string& path) {
  fs::create_directories(below(root(), path));
  return *this;
}

FakeCgroupTree& FakeCgroupTree::link(const std::string& path, const std::string& target) {
  make_link(below(root(), path), target);
  return *this;
}

FakeCgroupTree& FakeCgroupTree::remove(const std::string& path) {
  fs::remove_all(below(root(), path));
  return *this;
}

FakeCgroupTree& FakeCgroupTree::recreate(const std::string& path) {
  const fs::path directory = below(root(), path);
  fs::remove_all(directory);
  fs::create_directories(directory);
  return *this;
}

FakeCgroupTree& FakeCgroupTree::process(int pid, std::string_view cgroup, const std::string& exe,
                                        unsigned netns) {
  const std::string directory = std::to_string(pid);
  write_proc(directory + "/cgroup", cgroup);
  write_proc(directory + "/comm", exe.empty() ? "kthreadd\n" : "collector\n");
  if (!exe.empty()) {
    link_proc(directory + "/exe", exe);
  }
  if (netns != 0) {
    link_proc(directory + "/ns/net", "net:[" + std::to_string(netns) + "]");
  }
  return *this;
}

FakeCgroupTree& FakeCgroupTree::write_proc(const std::string& path, std::string_view text) {
  write_file(below(proc_root(), path), text);
  return *this;
}

FakeCgroupTree& FakeCgroupTree::link_proc(const std::string& path, const std::string& target) {
  make_link(below(proc_root(), path), target);
  return *this;
}

Hierarchy FakeCgroupTree::hierarchy(bool with_proc) const {
  auto found = Hierarchy::detect(root(), with_proc ? proc_root() : std::string());
  if (!found) {
    throw std::runtime_error(found.error().message);
  }
  return std::move(*found);
}

}  // namespace headgate::test
