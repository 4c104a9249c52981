#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace topocoll::tools {
namespace {

constexpr int kWidth = 30;
constexpr const char* kWipe = "\r\033[K";

void write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string progress_line(const std::string& what, int done, int total) {
  const int filled = total > 0 ? std::clamp(kWidth * done / total, 0, kWidth) : kWidth;
  return fmt::format("{} [{}{}] {} of {}", what, std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(kWidth - filled), '-'), done, total);
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), seen_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (seen_) write(kWipe);
}

void ProgressBar::show(int done, int total) {
  if (seen_) write(kWipe + progress_line(what_, done, total));
}

}  // namespace topocoll::tools
