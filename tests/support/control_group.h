// A memory control group of this machine, for as long as the object lives; needs root.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>

#include "support/eventually.h"

namespace topocoll::testing {

class MemoryControlGroup {
 public:
  explicit MemoryControlGroup(std::uint64_t limit_bytes) {
    const std::string name = "/topocoll_test_" + std::to_string(::getpid());
    std::ifstream groups("/proc/self/cgroup");
    // Of version one ("4:memory:/path"), or of version two ("0::/path").
    for (std::string line; missing() && std::getline(groups, line);) {
      const bool one = line.find(":memory:") != line.npos;
      if (!one && line.find("::") == line.npos) continue;
      const std::string base = std::string("/sys/fs/cgroup") + (one ? "/memory" : "");
      for (const std::string& parent : {base + line.substr(line.rfind(':') + 1), base}) {
        make(parent + name, one ? "/memory.limit_in_bytes" : "/memory.max", limit_bytes);
        if (!missing()) break;
      }
    }
  }
  MemoryControlGroup(const MemoryControlGroup&) = delete;
  MemoryControlGroup& operator=(const MemoryControlGroup&) = delete;
  ~MemoryControlGroup() {
    if (missing()) return;
    // A group is busy until the last of its processes has been reaped.
    static_cast<void>(eventually([this] { return ::rmdir(path_.c_str()) == 0 || errno != EBUSY; }));
  }

  /// Whether there is none: no root, no such controller, or a version two that hands it to no
  /// child.
  [[nodiscard]] bool missing() const { return path_.empty(); }
  /// Moves the calling process there.
  [[nodiscard]] bool enter() const { return write("/cgroup.procs", std::to_string(::getpid())); }

 private:
  void make(const std::string& path, const char* limit, std::uint64_t bytes) {
    if (::mkdir(path.c_str(), 0755) != 0) return;
    path_ = path;
    struct stat file {};
    if (::stat((path + limit).c_str(), &file) == 0 && write(limit, std::to_string(bytes))) return;
    ::rmdir(path.c_str());
    path_.clear();
  }
  [[nodiscard]] bool write(const char* file, const std::string& text) const {
    std::ofstream out(path_ + file);
    out << text << std::flush;
    return out.good();
  }
  std::string path_;
};

}  // namespace topocoll::testing
