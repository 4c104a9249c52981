// Random calls of the reduction kernels, held against the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/cpu/reduce.h"
#include "collectives/cpu/reduce_targets.h"
#include "hwy/highway.h"
#include "support/reduce_reference.h"

namespace topocoll {
namespace {

/// One call with everything that may vary, guard bytes around every output.
struct Trial {
  DataType type;
  ReduceOp op;
  std::size_t count = 0;
  int num_sources = 1;
  int aliased = -1;  // the target is this source
  bool mirror = false;
  bool stream = false;
  bool wild = false;
  bool misaligned = false;  // by bytes, not only by elements
  int divisor = 1;

  std::string describe() const {
    return std::string(name(type)) + " " + std::string(name(op)) + " count " +
           std::to_string(count) + " sources " + std::to_string(num_sources) + " aliased " +
           std::to_string(aliased) + " mirror " + std::to_string(mirror) + " stream " +
           std::to_string(stream) + " wild " + std::to_string(wild) + " misaligned " +
           std::to_string(misaligned) + " divisor " + std::to_string(divisor);
  }
};

constexpr std::size_t kGuard = 128;

template <class Rng>
void run(const Trial& t, Rng& rng) {
  const ReduceFunction function = reduce_function(t.type, t.op);
  ASSERT_NE(function, nullptr) << t.describe();
  const std::size_t size = size_of(t.type);
  const std::size_t bytes = t.count * size;
  const auto offset = [&] { return rng() % 64 * (t.misaligned ? 1 : size) % 64; };

  std::vector<Bytes> buffers;
  std::vector<std::size_t> begins;
  for (int k = 0; k < t.num_sources + 2; ++k) {  // the last two: target and mirror
    begins.push_back(kGuard + offset());
    buffers.emplace_back(bytes + 2 * kGuard + 64, static_cast<unsigned char>(0xA5));
    if (k < t.num_sources) fill(t.type, buffers.back(), begins.back(), t.count, t.wild, rng);
  }
  std::vector<double> factors;
  for (int k = 0; k < t.num_sources; ++k) {
    factors.push_back(std::ldexp(1.0 + static_cast<double>(rng() % 1000) / 997.0,
                                 static_cast<int>(rng() % 3) - 1));
  }

  Bytes expected(bytes);
  Element element{{}, factors.data(), t.divisor, !t.wild && t.num_sources <= 8};
  for (std::size_t i = 0; i < t.count; ++i) {
    element.sources.clear();
    for (int k = 0; k < t.num_sources; ++k) {
      element.sources.push_back(buffers[k].data() + begins[k] + i * size);
    }
    reference(t.type, t.op, element, expected.data() + i * size);
    if (testing::Test::HasFatalFailure()) FAIL() << t.describe() << " at " << i;
  }

  const int out = t.aliased >= 0 ? t.aliased : t.num_sources;
  const int mirror = t.num_sources + 1;
  const std::vector<Bytes> before = buffers;
  std::vector<const void*> sources;
  for (int k = 0; k < t.num_sources; ++k) sources.push_back(buffers[k].data() + begins[k]);
  function({.target = buffers[out].data() + begins[out],
            .mirror = t.mirror ? buffers[mirror].data() + begins[mirror] : nullptr,
            .sources = sources.data(),
            .num_sources = t.num_sources,
            .count = t.count,
            .factors = factors.data(),
            .divisor = t.divisor,
            .stream_target = t.stream});

  for (int k = 0; k < t.num_sources + 2; ++k) {
    Bytes want = before[k];
    if (k == out || (k == mirror && t.mirror)) {
      std::copy(expected.begin(), expected.end(), want.begin() + begins[k]);
    }
    if (want == buffers[k]) continue;
    const auto [w, g] = std::mismatch(want.begin(), want.end(), buffers[k].begin());
    const std::ptrdiff_t at = w - want.begin() - static_cast<std::ptrdiff_t>(begins[k]);
    FAIL() << t.describe() << ": buffer " << k << " byte " << at << " is " << int{*g} << ", not "
           << int{*w};
  }
}

/// Runs `body` once with each SIMD target that was built and that this machine can run.
template <class Body>
void for_each_target(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
    hwy::SetSupportedTargetsForTest(0);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace topocoll
