// Store: the key-value service through which ranks find each other. It is used while a communicator
// is created and never on a data path.
//
//   auto store = topocoll::connect_tcp_store("127.0.0.1", 29511, secret, 30s);
//
// Thread rule: an implementation serves calls from several threads.
// Failure rule: get() returns kTimeout when the deadline passes; a lost server is kSystem.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "topocoll/export.h"
#include "topocoll/status.h"

namespace topocoll {

class TOPOCOLL_API Store {
 public:
  virtual ~Store() = default;
  /// Sets `key`; a second set overwrites.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  /// Waits up to `timeout` for `key` to be set and returns its value.
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds `delta` to the integer at `key` (0 if absent) and returns the new value.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta) = 0;
  /// Whether `key` is set, without waiting.
  virtual Result<bool> contains(const std::string& key) = 0;
};

/// A store inside one process, for tests and for ranks that are threads.
TOPOCOLL_API std::shared_ptr<Store> make_memory_store();

/// A TCP store's server: serves until destroyed. Keys, values and the number of connections are
/// capped; a malformed or unauthenticated connection is closed without touching the others.
class TOPOCOLL_API StoreServer {
 public:
  virtual ~StoreServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

/// Starts a server on `host` (one address of this machine, never all of them) and `port` (0: any).
/// Clients must present `secret` in their first message.
TOPOCOLL_API Result<std::unique_ptr<StoreServer>> serve_tcp_store(const std::string& host,
                                                                  std::uint16_t port,
                                                                  const std::string& secret);

/// Connects to a server, trying again until `timeout` while nothing listens there yet.
TOPOCOLL_API Result<std::shared_ptr<Store>> connect_tcp_store(const std::string& host,
                                                              std::uint16_t port,
                                                              const std::string& secret,
                                                              std::chrono::milliseconds timeout);

}  // namespace topocoll
