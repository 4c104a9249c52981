#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

namespace topocoll {
namespace {

// spdlog's own sinks format under a mutex, which a child forked at the wrong moment inherits
// locked.
class StderrSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const auto micros =
        std::chrono::duration_cast<std::chrono::microseconds>(message.time.time_since_epoch())
            .count();
    const auto second_of_day = micros / 1'000'000 % 86'400;
    const auto level = spdlog::level::to_string_view(message.level);
    auto line = fmt::format("{:02}:{:02}:{:02}.{:06}Z topocoll[{}] {}: ", second_of_day / 3600,
                            second_of_day / 60 % 60, second_of_day % 60, micros % 1'000'000,
                            ::getpid(), std::string_view(level.data(), level.size()));
    for (const char c : std::string_view(message.payload.data(), message.payload.size())) {
      line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;  // one line, whatever a peer sent us
    }
    line += '\n';
    const int saved_errno = errno;  // a caller may log before it reads errno
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    errno = saved_errno;
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::warn;
}

spdlog::logger& backend() {
  // Never destroyed: threads may log while the process exits. Not in spdlog's registry: the process
  // may hold another copy of spdlog, and its set_level() must not reach us.
  static spdlog::logger& logger = *[] {
    auto* made = new spdlog::logger("topocoll", std::make_shared<StderrSink>());
    const auto options = Options::from_environment();
    made->set_level(to_spdlog(options.ok() ? options->log_level : Options().log_level));
    return made;
  }();
  return logger;
}

}  // namespace

bool Logger::enabled(LogLevel level) const { return backend().should_log(to_spdlog(level)); }

void Logger::write(LogLevel level, fmt::string_view text, fmt::format_args arguments) const {
  if (!enabled(level)) return;
  const std::string line = fmt::vformat(text, arguments);
  backend().log(to_spdlog(level), std::string_view(line));
}

const Logger& log() {
  static constexpr Logger logger;
  return logger;
}

}  // namespace topocoll
