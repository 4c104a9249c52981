// How a connection of this job begins: one fixed-size Hello with the job's secret, and its answer.
// Whatever is spoken afterwards has a magic and a version of its own.
//
// The secret travels in the clear: it keeps out strays and other jobs, not who reads the network.
//
// Thread rule: plain data and free functions. Failure rule: what does not parse is refused.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace topocoll::tcp {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr std::size_t kMaxSecretBytes = 1024;

using Magic = std::array<char, 8>;

struct Hello {
  Magic magic{};
  std::uint32_t version = 0;
  std::uint32_t secret_bytes = 0;
  std::array<char, kMaxSecretBytes> secret{};  ///< zero after secret_bytes
};
static_assert(sizeof(Hello) == 1040);

enum class Admission : std::uint32_t { kAccepted = 0, kWrongSecret = 1, kWrongVersion = 2 };

struct HelloReply {
  Magic magic{};
  std::uint32_t version = 0;
  Admission admission = Admission::kAccepted;
};
static_assert(sizeof(HelloReply) == 16);

/// What an end with this secret says, and expects; the secret has at most kMaxSecretBytes.
inline Hello make_hello(const Magic& magic, std::uint32_t version, const std::string& secret) {
  Hello hello{magic, version, static_cast<std::uint32_t>(secret.size()), {}};
  std::copy_n(secret.begin(), std::min(secret.size(), kMaxSecretBytes), hello.secret.begin());
  return hello;
}

/// The answer to a hello whose magic is right. The time it takes depends on no secret.
inline HelloReply answer_hello(const Hello& hello, const Hello& expected) {
  volatile unsigned difference = hello.secret_bytes ^ expected.secret_bytes;
  for (std::size_t i = 0; i < kMaxSecretBytes; ++i) {
    difference = difference | static_cast<unsigned>(hello.secret[i] ^ expected.secret[i]);
  }
  HelloReply answer{expected.magic, expected.version, Admission::kAccepted};
  if (hello.version != expected.version) {
    answer.admission = Admission::kWrongVersion;
  } else if (difference != 0) {
    answer.admission = Admission::kWrongSecret;
  }
  return answer;
}

}  // namespace topocoll::tcp
