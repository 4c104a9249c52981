// Recorded machines as one file: packed and unpacked by the system's tar.
//
// Thread rule: one thread. Failure rule: a Status that names the archive; nothing is left behind.
#pragma once

#include <string>

#include "topocoll/status.h"

namespace topocoll::tools {

/// A directory that vanishes with this object.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> create();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Whether a name is that of a packed recording: .tar, .tar.gz, .tgz, .tar.bz2, .tar.xz.
bool is_archive(const std::string& path);
Status pack(const std::string& directory, const std::string& name, const std::string& archive);
Status unpack(const std::string& archive, const std::string& directory);

}  // namespace topocoll::tools
