// The TCP store's server: one thread that serves every connection with poll().
//
// Hostile input is expected: a connection that has not presented the secret costs a kilobyte and
// lives at most `hello_timeout`; the oldest such connection makes room for a new one, so that a
// flood of silent connections keeps nobody out; whatever does not parse closes that one alone.
//
// Thread rule: one thread owns the server object; port() may be called from any.
// Failure rule: start_server() reports what cannot be had; a running server has no errors of its
// own, but that it closes all connections and ends when memory is exhausted.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "control/tcp_store_wire.h"
#include "topocoll/status.h"
#include "topocoll/store.h"

namespace topocoll::tcp_store {

struct ServerLimits {
  std::size_t connections = 1024;         ///< all of them
  std::size_t unproven_connections = 64;  ///< those without a valid hello so far
  std::chrono::milliseconds hello_timeout{2000};
  std::size_t stored_bytes = std::size_t{64} << 20;  ///< keys and values together
  std::size_t waits_per_connection = 1024;           ///< parked get() requests
  std::size_t reply_backlog_bytes = std::size_t{8}
                                    << 20;  ///< then a connection's requests must wait
};

Result<std::unique_ptr<StoreServer>> start_server(const std::string& host, std::uint16_t port,
                                                  const std::string& secret,
                                                  const ServerLimits& limits);

}  // namespace topocoll::tcp_store
