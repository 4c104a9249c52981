#include "collectives/cpu/method.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace topocoll {
namespace {

/// A challenger that needs less than this share of the incumbent's time wins at once; one that needs less
/// than the other must win twice in a row.
constexpr double kByFar = 0.8;
constexpr double kClearly = 0.95;

/// So many operations in a row that took this many times longer or shorter than expected begin a round, if an
/// eighth of the time until the next has passed.
constexpr double kSurprise = 1.3;
constexpr int kSurprises = 3;
constexpr std::uint32_t kEarliest = 8;
constexpr std::uint32_t kWatched = 16;  ///< small operations: one in so many is timed
constexpr std::size_t kAllWatchedBytes = std::size_t(64) << 10;

/// Slots or ring: lines that have been left alone for a while are cheap to write either way, so the other
/// way shows what it takes only after it has gone through all of its own for some times.
constexpr std::size_t kRingSettling = 48;

/// A round costs about ten operations, some of them slow ones: a few per cent of what passes between rounds.
constexpr std::uint32_t kInterval = 256;
constexpr std::uint32_t kLargeInterval = 64;  ///< from kLargeBytes: few operations are many milliseconds
constexpr std::uint32_t kMaxGrowth = 8;
constexpr std::uint32_t kFirstWait = 4;  ///< the first operations of a size meet cold memory
constexpr std::size_t kLargeBytes = std::size_t(1) << 20;
constexpr std::size_t kHugeBytes = std::size_t(64) << 20;  ///< one sample is long enough

}  // namespace

int method_class(std::size_t bytes) {
  const auto k = static_cast<int>(std::bit_width(bytes)) - static_cast<int>(std::bit_width(kMinMethodBytes));
  return std::clamp(k, 0, shm::kMethodClasses - 1);
}

std::size_t method_class_bytes(int size_class) { return kMinMethodBytes << size_class; }

Method first_method(const shm::Tuning& tuning, std::size_t bytes) {
  const bool small = bytes < tuning.small_copy_bytes;
  return {small ? CopyKind::kMemcpy : static_cast<CopyKind>(tuning.slot_copy), bytes >= tuning.two_shot_bytes};
}

Method current_method(const shm::SegmentHeader& header, const shm::Tuning& tuning, std::size_t bytes) {
  if (bytes < kMinMethodBytes) return {};
  const auto size_class = static_cast<std::size_t>(method_class(bytes));
  const std::uint8_t packed = header.methods[size_class].load(std::memory_order_relaxed);
  return packed == 0 ? first_method(tuning, bytes) : Method::unpack(packed);
}

MethodChooser::MethodChooser(shm::SegmentHeader& header, const shm::Tuning& tuning, Options options)
    : header_(header), options_(std::move(options)) {
  for (int k = 0; k < shm::kMethodClasses; ++k) {
    Class& c = classes_[static_cast<std::size_t>(k)];
    c.incumbent = first_method(tuning, method_class_bytes(k));
    c.interval = first_interval(k);
    c.wait = kFirstWait;
    c.ring_first = tuning.ring_from_bytes != 0 && method_class_bytes(k) >= tuning.ring_from_bytes;
  }
}

bool MethodChooser::may_ring(int size_class) {
  const std::size_t bytes = method_class_bytes(size_class);
  if (options_.ring_min_bytes == 0 || bytes < options_.ring_min_bytes || bytes > options_.eager_bytes) return false;
  if (!options_.has_ring()) options_.ring_min_bytes = 0;
  return options_.ring_min_bytes != 0;
}

std::size_t MethodChooser::settling(const Class& c, std::size_t bytes) const {
  if (c.entrants[c.entrant].ring != c.incumbent.ring) return kRingSettling;
  // Peers may have copied by the method before.
  return bytes <= options_.eager_bytes ? 1 : 0;
}

std::size_t MethodChooser::turns(const Class& c, std::size_t bytes) const {
  return settling(c, bytes) + (bytes >= kHugeBytes ? 1 : 2);
}

std::uint32_t MethodChooser::first_interval(int size_class) const {
  return method_class_bytes(size_class) >= kLargeBytes ? kLargeInterval : kInterval;
}

void MethodChooser::publish(int size_class, Method method) const {
  header_.methods[static_cast<std::size_t>(size_class)].store(method.packed(), std::memory_order_relaxed);
}

void MethodChooser::start_round(Class& c, int size_class, CollectiveKind kind) {
  c.kind = kind;
  c.entrant = c.turn = c.size = 0;
  c.best.fill(std::numeric_limits<double>::max());
  c.entrants[c.size++] = c.incumbent;
  for (const CopyKind copy : options_.copies) {
    if (copy != c.incumbent.copy) c.entrants[c.size++] = {copy, c.incumbent.two_shot, c.incumbent.ring};
  }
  const std::size_t bytes = method_class_bytes(size_class);
  if (kind == CollectiveKind::kAllReduce) {
    if (options_.two_shot_min_bytes != 0 && bytes >= options_.two_shot_min_bytes) {
      c.entrants[c.size++] = {c.incumbent.copy, !c.incumbent.two_shot, c.incumbent.ring};
    }
    if (may_ring(size_class)) {
      c.entrants[c.size++] = {c.incumbent.copy, c.incumbent.two_shot, !c.incumbent.ring};
    }
  }
  if (c.size == 1) c.size = 0;
}

bool MethodChooser::begin(CollectiveKind kind, std::size_t bytes) {
  const int size_class = method_class(bytes);
  Class& c = classes_[static_cast<std::size_t>(size_class)];
  if (c.ring_first) {
    c.ring_first = false;
    c.incumbent.ring = may_ring(size_class);
    publish(size_class, c.incumbent);
  }
  if (c.size == 0) {
    if (c.generation != generation_) {
      // Another class has changed, so the machine may have: try at once.
      c.generation = generation_;
      c.interval = first_interval(size_class);
      c.wait = 0;
      c.prompted = true;
    }
    if (c.wait != 0) {
      --c.wait;
      return c.expected != 0 && kind == c.kind && (bytes >= kAllWatchedBytes || c.wait % kWatched == 0);
    }
    start_round(c, size_class, kind);
    c.wait = c.interval;
    if (c.size == 0) return false;
  }
  if (kind != c.kind) return false;
  if (c.turn == 0) publish(size_class, c.entrants[c.entrant]);
  return c.turn++ >= settling(c, method_class_bytes(size_class));
}

void MethodChooser::report(std::size_t bytes, double nanoseconds) {
  const int size_class = method_class(bytes);
  Class& c = classes_[static_cast<std::size_t>(size_class)];
  if (c.size == 0) return watch(c, nanoseconds / static_cast<double>(bytes));
  double& best = c.best[c.entrant];
  best = std::min(best, nanoseconds / static_cast<double>(bytes));
  if (c.turn < turns(c, method_class_bytes(size_class))) return;
  c.turn = 0;
  if (++c.entrant == c.size) end_round(c, size_class);
}

void MethodChooser::watch(Class& c, double cost) {
  const bool surprise = cost > c.expected * kSurprise || cost * kSurprise < c.expected;
  c.surprises = surprise ? c.surprises + 1 : 0;
  if (c.surprises < kSurprises || c.interval - c.wait < c.interval / kEarliest) return;
  c.surprises = 0;
  c.wait = 0;
}

void MethodChooser::end_round(Class& c, int size_class) {
  const auto winner = static_cast<std::size_t>(std::min_element(c.best.begin(), c.best.end()) - c.best.begin());
  const Method method = c.entrants[winner];
  const bool clearly = winner != 0 && c.best[winner] < kClearly * c.best[0];
  c.size = 0;
  c.expected = c.best[0];
  if (!clearly) {
    c.winning = c.prompted = false;
    c.interval = std::min(c.interval * 2, first_interval(size_class) * kMaxGrowth);
    c.wait = c.interval;
  } else if (c.best[winner] > kByFar * c.best[0] && !(c.winning && c.challenger == method)) {
    c.winning = true;
    c.challenger = method;
    c.wait = 0;
  } else {
    c.incumbent = method;
    c.expected = c.best[winner];
    c.interval = first_interval(size_class);
    c.wait = c.interval;
    // A class that was prompted prompts nobody: two that differ would do so for ever.
    if (!c.prompted) c.generation = ++generation_;
    c.winning = c.prompted = false;
  }
  publish(size_class, c.incumbent);
}

}  // namespace topocoll
