#include "files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace topocoll::tools {
namespace {

/// Larger files are neither a topology nor a plan.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

Status file_error(const std::string& path, int error) {
  return Status(Cause::kSystem, fmt::format("{}: {}", path, std::strerror(error)));
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(path == "-" ? stdin
                                                               : std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return file_error(path, errno);
  std::string text;
  char chunk[64 * 1024];
  while (const std::size_t got = std::fread(chunk, 1, sizeof chunk, file.get())) {
    text.append(chunk, got);
    if (text.size() > kMaxFileBytes) {
      return Status(Cause::kResource, fmt::format("{}: larger than {} bytes", path, kMaxFileBytes));
    }
  }
  if (std::ferror(file.get()) != 0) return file_error(path, errno);
  return text;
}

Status write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return file_error(path, errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) != 0 && written) return file_error(path, errno);
  return written ? Status() : file_error(path, error);
}

}  // namespace topocoll::tools
