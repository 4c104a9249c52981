#include "store_adapter.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "precompiled.h"

namespace topocoll::plugin {
namespace {

class StoreAdapter final : public topocoll::Store {
 public:
  explicit StoreAdapter(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override {
    const auto done = guarded<bool>("set", key, [&] {
      store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
      return true;
    });
    return done.status();
  }

  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    // torch's stores take 0 to mean "for ever".
    timeout = std::max(timeout, std::chrono::milliseconds(1));
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    auto got = guarded<std::string>("get", key, [&] {
      store_->wait({key}, timeout);
      const auto value = store_->get(key);
      return std::string(value.begin(), value.end());
    });
    // Each kind of store throws something else when the time is up.
    if (got.status().cause() == Cause::kSystem && std::chrono::steady_clock::now() >= deadline) {
      return Status(Cause::kTimeout, got.status().text());
    }
    return got;
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return guarded<std::int64_t>("add", key, [&] { return store_->add(key, delta); });
  }

  Result<bool> contains(const std::string& key) override {
    return guarded<bool>("check", key, [&] { return store_->check({key}); });
  }

 private:
  template <class T, class F>
  static Result<T> guarded(const char* action, const std::string& key, F&& f) {
    const auto failed = [&](Cause cause, const std::string& why) {
      return Status(cause, std::string("the store could not ") + action + " \"" + key + "\": " + why);
    };
    try {
      return Result<T>(f());
    } catch (const c10::DistStoreError& e) {
      // What the TCP store throws when a wait ran out of time; a lost server is a DistNetworkError.
      return failed(Cause::kTimeout, e.what_without_backtrace());
    } catch (const c10::Error& e) {
      return failed(Cause::kSystem, e.what_without_backtrace());
    } catch (const std::exception& e) {
      return failed(Cause::kSystem, e.what());
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<topocoll::Store> adapt(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<StoreAdapter>(std::move(store));
}

}  // namespace topocoll::plugin
