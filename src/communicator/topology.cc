// Communicator::topology(): the ranks exchange what they see, and each merges all of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "topocoll/communicator.h"
#include "topocoll/probe.h"
#include "topology/merge.h"

namespace topocoll {
namespace {

constexpr std::uint64_t kMaxPartBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kMaxAllBytes = std::uint64_t{512} << 20;

/// A rank's message: what follows, on which host, and a topology or the reason why there is none.
constexpr char kTopology = 'T';
constexpr char kError = 'E';

std::string own_message(const std::string& host_id) {
  const auto own = known_topology();
  const std::string text = own.ok() ? to_json(*own) : own.status().text();
  return fmt::format("{}{}\n{}", own.ok() ? kTopology : kError, host_id, text);
}

/// Everybody's message by rank. What is wrong is so for every rank alike.
Result<std::vector<std::string>> gather_messages(Communicator& group, const std::string& own) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::uint64_t bytes = own.size();
  std::vector<std::uint64_t> sizes(ranks);
  if (Status s = group.all_gather(&bytes, sizes.data(), 1, DataType::kU64); !s.ok()) return s;
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  if (*largest > kMaxPartBytes ||
      std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) > kMaxAllBytes) {
    return Status(Cause::kResource,
                  fmt::format("the ranks' topologies are too large: rank {}'s has {} bytes; {} are "
                              "allowed, and {} for all together",
                              largest - sizes.begin(), *largest, kMaxPartBytes, kMaxAllBytes));
  }
  std::vector<std::string> all(ranks);
  std::vector<Block> blocks;
  for (std::size_t r = 0; r < ranks; ++r) {
    all[r].resize(sizes[r]);
    blocks.push_back({all[r].data(), all[r].size()});
  }
  if (Status s = group.all_gather_v({own.data(), own.size()}, blocks, DataType::kU8); !s.ok()) {
    return s;
  }
  return all;
}

Result<std::vector<TopologyPart>> read_parts(const std::vector<std::string>& messages) {
  std::vector<TopologyPart> parts;
  std::map<std::string_view, std::size_t> known;  // ranks of one host mostly say the same
  for (std::size_t r = 0; r < messages.size(); ++r) {
    const std::string_view message = messages[r];
    const std::size_t line = std::min(message.find('\n'), message.size());
    const std::string_view text = message.substr(std::min(line + 1, message.size()));
    const int rank = static_cast<int>(r);
    const auto wrong = [&](Cause cause, std::string_view why) {
      return Status::operation(cause, {rank}, 0, 0, "",
                               fmt::format("rank {} has no topology: {}", rank, why));
    };
    if (message.starts_with(kError)) return wrong(Cause::kSystem, text);
    if (!message.starts_with(kTopology))
      return wrong(Cause::kInternal, "its message cannot be read");
    TopologyPart part{rank, std::string(message.substr(1, line - 1)), {}};
    const auto [at, added] = known.try_emplace(text, r);
    if (added) {
      auto topology = topology_from_json(text);
      if (!topology.ok()) return wrong(topology.status().cause(), topology.status().text());
      part.topology = std::move(*topology);
    } else {
      part.topology = parts[at->second].topology;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

/// The same bytes everywhere, or an error everywhere.
Status compare(Communicator& group, const Topology& merged) {
  const std::uint64_t own = fnv1a(to_json(merged));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  if (Status s = group.all_gather(&own, all.data(), 1, DataType::kU64); !s.ok()) return s;
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    return Status::operation(
        Cause::kMismatch, {static_cast<int>(r)}, 0, 0, "",
        fmt::format("rank {} has made another graph of the same parts than rank 0", r));
  }
  return {};
}

}  // namespace

Result<Topology> Communicator::topology() {
  const auto messages = gather_messages(*this, own_message(info().host_id));
  if (!messages.ok()) return messages.status();
  auto parts = read_parts(*messages);
  if (!parts.ok()) return parts.status();
  auto merged = merge_topologies(std::move(*parts));
  if (!merged.ok()) return merged.status();
  if (Status s = compare(*this, *merged); !s.ok()) return s;
  return merged;
}

}  // namespace topocoll
