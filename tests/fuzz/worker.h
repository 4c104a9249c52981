// One process per target that makes and feeds inputs, and what its supervisor sees of it.
//
// Thread rule: a Worker belongs to the supervisor's thread. Failure rule: whatever the target does
// to its process ends as a Verdict here; nothing is left running.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fuzz/target.h"

namespace topocoll::fuzz {

/// An input may take this long, and this much memory.
inline constexpr std::chrono::seconds kMaxTime{2};
inline constexpr long kMaxKibibytes = 1L << 20;

using MakeTarget = std::function<std::unique_ptr<Target>()>;

/// What both processes see.
struct Shared;

struct Verdict {
  std::string what;   ///< "crash", "hang", "memory"; empty: none of them
  std::string input;  ///< that did it
};

class Worker {
 public:
  /// Starts feeding inputs of the seed until `seconds` have passed.
  static Worker feeding(const MakeTarget& make, unsigned seed, std::chrono::milliseconds time);
  /// Starts feeding this one.
  static Worker replaying(const MakeTarget& make, const std::string& input);
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&&) = delete;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  /// Looks without waiting; whether the worker has ended.
  bool ended();
  /// After its end.
  [[nodiscard]] const Verdict& verdict() const { return verdict_; }
  [[nodiscard]] std::uint64_t inputs() const;
  [[nodiscard]] std::uint64_t read() const;

 private:
  explicit Worker(Shared* shared) : shared_(shared) {}
  void start(const std::function<void()>& body);
  void judge(int status);
  void kill_all() const;

  Shared* shared_ = nullptr;
  pid_t pid_ = -1;
  std::uint64_t last_serial_ = 0;
  std::chrono::steady_clock::time_point since_;
  bool hung_ = false;
  Verdict verdict_;
};

}  // namespace topocoll::fuzz
