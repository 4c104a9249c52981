// A Store inside one process: a map under a lock, and a condition that every change signals.
#include <condition_variable>
#include <mutex>
#include <string>
#include <unordered_map>

#include "control/store_number.h"
#include "topocoll/store.h"

namespace topocoll {
namespace {

class MemoryStore final : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
    return {};
  }

  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    // A deadline that overflows the clock would lie in the past; a year is as good as for ever.
    const auto wait = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
    const auto deadline = std::chrono::steady_clock::now() + wait;
    if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); })) {
      return Status(Cause::kTimeout, "key '" + key + "' was not set within " +
                                         std::to_string(timeout.count()) + " ms");
    }
    return values_[key];
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    std::int64_t sum = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(key);
      auto result = add_to_number(found == values_.end() ? nullptr : &found->second, delta);
      if (!result.ok()) return result.status().annotated("key '" + key + "'");
      sum = *result;
      values_[key] = std::to_string(sum);
    }
    changed_.notify_all();
    return sum;
  }

  Result<bool> contains(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return values_.contains(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace topocoll
