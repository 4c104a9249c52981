#include "probe/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "topology/tree.h"

namespace topocoll {
namespace {

constexpr std::size_t kAllPairs = 8;  ///< CPUs, up to which every pair is measured
constexpr std::size_t kPairsOfClass = 8;
constexpr int kMostPorts = 255;         ///< verbs count them in a byte
constexpr std::size_t kMostCpus = 512;  ///< that pairs are drawn from: 131,000 pairs

std::vector<std::size_t> usable_cpu_nodes(const Topology& topology) {
  std::vector<std::size_t> nodes;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    const TopologyNode& node = topology.nodes[i];
    if (node.kind == NodeKind::kCpu && node.os_index && !node.cpus.empty()) nodes.push_back(i);
  }
  return nodes;
}

/// 0: it is none.
int port_number(const std::string& text) {
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole && number >= 1 && number <= kMostPorts ? number : 0;
}

}  // namespace

std::vector<ChosenPair> choose_pairs(const Topology& topology, std::mt19937_64& random) {
  std::vector<std::size_t> cpus = usable_cpu_nodes(topology);
  const std::size_t most = cpus.size() <= kAllPairs ? kAllPairs * kAllPairs : kPairsOfClass;
  std::shuffle(cpus.begin(), cpus.end(), random);
  if (cpus.size() > kMostCpus) cpus.resize(kMostCpus);
  PairClasses classes(topology);
  std::map<std::string, std::pair<std::size_t, std::vector<ChosenPair>>> chosen;  // seen, kept
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    for (std::size_t k = i + 1; k < cpus.size(); ++k) {
      ChosenPair pair{classes.of(cpus[i], cpus[k])};
      auto& [seen, kept] = chosen[pair.near];
      // Each pair of a class is kept with the same probability.
      const std::size_t place = seen < most ? seen : random() % (seen + 1);
      ++seen;
      if (place >= most) continue;
      if (place == kept.size()) kept.emplace_back();
      kept[place] = std::move(pair);
    }
  }
  std::vector<ChosenPair> pairs;
  for (auto& [near, of_class] : chosen) {
    of_class.second.front().first = true;
    for (ChosenPair& pair : of_class.second) pairs.push_back(std::move(pair));
  }
  std::shuffle(pairs.begin(), pairs.end(), random);
  std::stable_partition(pairs.begin(), pairs.end(), [](const ChosenPair& p) { return p.first; });
  return pairs;
}

std::vector<MemoryRead> choose_memory(const Topology& topology, std::mt19937_64& random) {
  std::vector<MemoryRead> near;
  std::vector<MemoryRead> far;
  const auto numas = topology.of_kind(NodeKind::kNumaNode);
  for (const TopologyNode* memory : numas) {
    if (!memory->os_index || memory->size_bytes.value_or(1) == 0) continue;
    const TopologyNode* above = topology.parent(memory->id);
    if (!memory->cpus.empty() && above != nullptr) {
      const int one = memory->cpus[random() % memory->cpus.size()];
      near.push_back({memory->id, *memory->os_index, fmt::format("cpu:{}", one), {one}, true});
      near.push_back({memory->id, *memory->os_index, above->id, memory->cpus, true});
    }
    for (const TopologyNode* reader : numas) {
      if (reader == memory || reader->cpus.empty()) continue;
      far.push_back({memory->id, *memory->os_index, reader->id, reader->cpus, false});
    }
  }
  std::shuffle(far.begin(), far.end(), random);
  near.insert(near.end(), far.begin(), far.end());
  return near;
}

std::vector<NicRead> choose_nic_reads(const Topology& topology, std::mt19937_64& random) {
  std::vector<NicRead> reads;
  for (const TopologyNode* port : topology.of_kind(NodeKind::kNicPort)) {
    const std::string device = port->attribute("rdma");
    const int number = port_number(port->attribute("port"));
    if (device.empty() || number == 0 || port->attribute("state") != "ACTIVE") continue;
    for (const TopologyNode* memory : topology.of_kind(NodeKind::kNumaNode)) {
      if (!memory->os_index || memory->cpus.empty()) continue;
      reads.push_back({memory->id, *memory->os_index, port->id, device, number,
                       memory->cpus[random() % memory->cpus.size()]});
    }
  }
  return reads;
}

}  // namespace topocoll
