// The TCP store's protocol: what client and server must agree on.
//
// A connection begins with one Hello and its HelloReply. Then the client sends Requests, each
// followed by its key and value bytes, and the server answers each with a Reply, followed by value
// bytes, in any order; `id` says which request a reply belongs to. All structs are of fixed size
// and little-endian.
//
// Thread rule: plain data. Failure rule: whatever does not parse closes that one connection.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/tcp/hello.h"

namespace topocoll::tcp_store {

using tcp::Admission;
using tcp::Hello;
using tcp::HelloReply;
using tcp::kMaxSecretBytes;

inline constexpr tcp::Magic kMagic = {'t', 'o', 'p', 'o', 's', 't', 'o', 'r'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = 1 << 20;

enum class RequestKind : std::uint32_t { kSet = 1, kGet = 2, kAdd = 3, kContains = 4 };

struct Request {
  RequestKind kind = RequestKind::kGet;
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;  ///< kSet only, else 0
  std::uint32_t reserved = 0;
  std::uint64_t id = 0;
  std::int64_t argument = 0;  ///< kGet: milliseconds to wait; kAdd: the delta
};
static_assert(sizeof(Request) == 32);

enum class Answer : std::uint32_t {
  kDone = 0,
  kNotInTime = 1,     ///< kGet: the key was not set
  kNoNumber = 2,      ///< kAdd: not an integer, or overflow
  kStoreFull = 3,     ///< kSet, kAdd: the server's memory cap
  kTooManyWaits = 4,  ///< kGet: this connection waits for too many keys already
};

struct Reply {
  std::uint64_t id = 0;
  std::int64_t number = 0;  ///< kAdd: the sum; kContains: 0 or 1
  std::uint32_t value_bytes = 0;
  Answer answer = Answer::kDone;
};
static_assert(sizeof(Reply) == 24);

}  // namespace topocoll::tcp_store
