// Waiting in tests: for a condition, never for a time.
#pragma once

#include <chrono>
#include <thread>

namespace topocoll::testing {

/// Waits for a condition; false after `limit`, which no correct test takes.
template <class Condition>
bool eventually(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(10)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace topocoll::testing
