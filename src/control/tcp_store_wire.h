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
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace topocoll::tcp_store {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr std::array<char, 8> kMagic = {'t', 'o', 'p', 'o', 's', 't', 'o', 'r'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMaxSecretBytes = 1024;
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = 1 << 20;

struct Hello {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t secret_bytes = 0;
  std::array<char, kMaxSecretBytes> secret{};  ///< zero after secret_bytes
};
static_assert(sizeof(Hello) == 1040);

enum class Admission : std::uint32_t { kAccepted = 0, kWrongSecret = 1, kWrongVersion = 2 };

struct HelloReply {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  Admission admission = Admission::kAccepted;
};
static_assert(sizeof(HelloReply) == 16);

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
