// The topocoll command as a child, and a file for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "perf/child.h"

namespace topocoll::testing {

inline Finished topocoll_command(
    std::vector<std::string> arguments,
    const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  arguments.insert(arguments.begin(), TOPOCOLL_COMMAND);
  return run(arguments, environment);
}

inline bool is_one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

class TemporaryFile {
 public:
  /// One that is there beside another needs an ending of its own.
  explicit TemporaryFile(const std::string& text, const std::string& ending = "")
      : path_(::testing::TempDir() + "/topocoll_test_" + std::to_string(::getpid()) + ending) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace topocoll::testing
