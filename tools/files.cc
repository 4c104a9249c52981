#include "files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

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

namespace {

/// 0, or the error.
int write_all(std::FILE* file, std::string_view text) {
  if (file == nullptr) return errno;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = written ? 0 : errno;
  return std::fclose(file) != 0 && written ? errno : error;
}

/// A reader that has gone away is no error.
Status write_to_standard_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((written && std::fflush(stdout) == 0) || errno == EPIPE) return {};
  return file_error("standard output", errno);
}

}  // namespace

Status write_file(const std::string& path, std::string_view text) {
  if (path == "-") return write_to_standard_output(text);
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  // Pipes and devices take the text itself.
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    const int error = write_all(std::fopen(path.c_str(), "wbe"), text);
    return error == 0 ? Status() : file_error(path, error);
  }
  // Through a link to what it leads to. What is there stays until the new text is whole.
  const fs::path target = fs::exists(there) ? fs::canonical(path, ignored) : fs::path(path);
  const std::string beside = fmt::format("{}.{}.part", target.string(), ::getpid());
  int error = write_all(std::fopen(beside.c_str(), "wbxe"), text);
  if (error == 0 && fs::exists(there)) fs::permissions(beside, there.permissions(), ignored);
  if (error == 0 && std::rename(beside.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return {};
  if (error != EEXIST) std::remove(beside.c_str());
  return file_error(path, error);
}

}  // namespace topocoll::tools
