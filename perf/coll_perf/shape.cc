#include "coll_perf/shape.h"

#include <algorithm>

namespace topocoll::perf {
namespace {

/// The largest number of elements that any rank sends to, or receives from, all ranks together.
std::size_t largest_total(std::size_t even, int ranks) {
  std::size_t largest = 0;
  for (int a = 0; a < ranks; ++a) {
    std::size_t sent = 0;
    std::size_t received = 0;
    for (int b = 0; b < ranks; ++b) {
      sent += uneven_part(even, a, b);
      received += uneven_part(even, b, a);
    }
    largest = std::max({largest, sent, received});
  }
  return largest;
}

}  // namespace

std::size_t uneven_part(std::size_t even, int from, int to) {
  const auto thirds = static_cast<std::size_t>(1 + (from + 2 * to) % 3);
  return even / 3 * thirds + even % 3 * thirds / 3;
}

Shape shape_of(Collective test, std::size_t bytes, std::size_t element_bytes, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const double size = static_cast<double>(element_bytes);
  const double split_factor = static_cast<double>(ranks - 1) / ranks;
  const std::size_t whole = bytes / element_bytes;
  const std::size_t align = std::max<std::size_t>(1, 16 / element_bytes);
  const std::size_t part = whole / n / align * align;
  Shape s{.send = whole, .recv = whole, .count = whole};
  s.traffic_bytes = static_cast<double>(whole) * size;
  switch (test) {
    case Collective::kAllReduce:
      s.bus_factor = 2 * split_factor;
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendRecv:
      break;
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kAllToAll:
      s = {.send = part * n, .recv = part * n, .count = part};
      if (test == Collective::kAllGather || test == Collective::kGather) s.send = part;
      if (test == Collective::kReduceScatter || test == Collective::kScatter) s.recv = part;
      s.traffic_bytes = static_cast<double>(part * n) * size;
      s.bus_factor = split_factor;
      break;
    case Collective::kAllToAllV: {
      const std::size_t most = largest_total(part, ranks);
      s = {.send = most, .recv = most, .count = part};
      s.traffic_bytes = static_cast<double>(most) * size;
      s.bus_factor = split_factor;
      break;
    }
    case Collective::kHypercube:
      s = {.send = part, .recv = part * n, .count = part};
      s.traffic_bytes = static_cast<double>(part * (n - 1)) * size;
      break;
  }
  s.row_bytes = std::max(s.send, s.recv) * element_bytes;
  return s;
}

}  // namespace topocoll::perf
