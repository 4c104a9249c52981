// A directory for one test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace topocoll::testing {

/// A directory of its own that disappears with its files.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = ::testing::TempDir() + "/topocoll-XXXXXX";  // mkdtemp() fills in the last six
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
    path_ = std::filesystem::canonical(path_);  // the kernel's name of it, as in /proc/self/maps
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    std::filesystem::remove_all(path_);
  }
  /// Whether a tmpfs of `bytes` could be mounted here.
  bool mount_tmpfs(std::size_t bytes) {
    const std::string data = "size=" + std::to_string(bytes);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, data.c_str()) == 0;
    return mounted_;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

}  // namespace topocoll::testing
