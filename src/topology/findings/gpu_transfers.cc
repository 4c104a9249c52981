// What was measured between GPUs, and between GPUs and memory: data that came wrong, and who is
// slower than its equals.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "topology/findings/rules.h"

namespace topocoll {
namespace {

constexpr double kPairShare = 0.9;       ///< of the median of a class, before a pair counts as slow
constexpr double kMemoryShare = 0.75;    ///< the same between a GPU and memory
constexpr double kLinkShare = 0.65;      ///< of a PCIe link, after its headers and more, at least
constexpr std::size_t kLeastEquals = 3;  ///< with fewer nobody can say which of them is odd
constexpr const char* kAgain = "topocoll topo probe --no-cache";

bool by_measured(const Figure* a, const Figure* b) { return *a->measured < *b->measured; }
double low_of(const Figure& f) { return f.spread ? f.spread->low : *f.measured; }
double high_of(const Figure& f) { return f.spread ? f.spread->high : *f.measured; }

/// The upper median: of an even number at least half are as good.
const Figure& median(std::vector<const Figure*> figures) {
  const auto middle = figures.begin() + static_cast<std::ptrdiff_t>(figures.size() / 2);
  std::nth_element(figures.begin(), middle, figures.end(), by_measured);
  return **middle;
}

bool is_fabric(const std::string& path) {
  return path.starts_with("NV") || path == "XGMI" || path == "C2C";
}

}  // namespace

/// Transfers whose ends are of two kinds at most, without those that are known to be wrong.
std::vector<FindingRules::Transfer> FindingRules::transfers(NodeKind from, NodeKind to) const {
  std::vector<Transfer> found;
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t a = tree_.index(edge.from);
    const std::size_t b = tree_.index(edge.to);
    if (edge.kind != "transfer" || a == TopologyTree::kNone || b == TopologyTree::kNone) continue;
    if (node(a).kind == from && node(b).kind == to && edge.fault.empty()) {
      found.push_back({&edge, a, b});
    }
  }
  return found;
}

void FindingRules::wrong_data() {
  std::map<std::pair<std::string, std::string>, std::string> faults;  // by ends, both ways together
  for (const TopologyEdge& edge : topology_.edges) {
    if (edge.fault.empty() || tree_.index(edge.from) == TopologyTree::kNone ||
        tree_.index(edge.to) == TopologyTree::kNone) {
      continue;
    }
    std::string& text = faults[std::minmax(edge.from, edge.to)];
    text += fmt::format("{}{} → {}: {}", text.empty() ? "" : "; ", edge.from, edge.to, edge.fault);
  }
  for (const auto& [ends, evidence] : faults) {
    const std::size_t a = tree_.index(ends.first);
    const std::size_t b = tree_.index(ends.second);
    const bool gpus = node(a).kind == NodeKind::kGpu && node(b).kind == NodeKind::kGpu;
    const std::string bdf = node(node(a).kind == NodeKind::kGpu ? a : b).bdf;
    const std::string health = fmt::format(
        "nvidia-smi nvlink --status --errorcounters -i {0}; nvidia-smi -q -d ECC -i {0}", bdf);
    const std::string fix =
        !gpus
            ? fmt::format("nvidia-smi -q -d ECC,ROW_REMAPPER -i {}; reset or replace the GPU", bdf)
        : is_fabric(paths_.word(a, b))
            ? "until it is mended, let NCCL do without it: NCCL_P2P_DISABLE=1; " + health +
                  "; reset the GPUs"
            : "until it is mended, let NCCL do without it: NCCL_P2P_DISABLE=1; on bare metal "
              "disable "
              "ACS in the BIOS and boot with iommu=pt or without IOMMU, in a virtual machine ask "
              "who runs the host; update "
              "the driver";
    add({gpus ? "p2p-lies" : "gpu-memory-lies",
         Severity::kError,
         {ends.first, ends.second},
         fmt::format("data between {} and {} arrives wrong", ends.first, ends.second),
         evidence,
         {},
         fix + "; to confirm: " + kAgain});
  }
}

/// Pairs of one host with the same declared path are equals; between NUMA nodes, of the same two.
void FindingRules::slow_gpu_pairs() {
  struct Class {
    std::map<std::pair<std::string, std::string>, PairFigures> pairs;
    std::vector<const Figure*> ways;
  };
  std::map<std::tuple<std::size_t, std::string, std::size_t, std::size_t>, Class> classes;
  for (const auto& [edge, from, to] : transfers(NodeKind::kGpu, NodeKind::kGpu)) {
    if (!edge->bandwidth_gbps.measured) continue;
    const std::string path = paths_.word(std::min(from, to), std::max(from, to));
    const auto [near, far] = path == "SYS" ? std::minmax({tree_.numa_of(from), tree_.numa_of(to)})
                                           : std::pair(TopologyTree::kNone, TopologyTree::kNone);
    Class& of = classes[{tree_.above(from, NodeKind::kHost), path, near, far}];
    of.pairs[std::minmax(edge->from, edge->to)].add(edge->from, edge->to, edge->bandwidth_gbps);
    of.ways.push_back(&edge->bandwidth_gbps);
  }
  for (const auto& [key, of] : classes) {
    std::vector<PairFigures> members;
    for (const auto& [ends, pair] : of.pairs) members.push_back(pair);
    if (members.size() >= kLeastEquals) {
      slow_gpus_of_class(members, median(of.ways), std::get<std::string>(key));
    }
  }
}

void FindingRules::slow_gpus_of_class(const std::vector<PairFigures>& members, const Figure& usual,
                                      const std::string& path) {
  const double equals = *usual.measured;
  const SlowOnes slow = find_slow(members, [&](const PairFigures& pair) {
    return pair.gbps < kPairShare * equals && pair.high < low_of(usual);
  });
  const auto add_slow = [&](const char* code, std::vector<std::string> nodes,
                            const std::string& text, const PairFigures& worst) {
    const std::string bdf = find(nodes.front())->bdf;
    const std::string look = is_fabric(path)
                                 ? "nvidia-smi nvlink --status --errorcounters -i " + bdf
                                 : fmt::format(
                                       "lspci -vv -s {} | grep -E 'LnkSta|ACSCtl', also of the "
                                       "bridges above it",
                                       bdf);
    add({code, Severity::kWarning, std::move(nodes), text,
         fmt::format("{}; equals ({}) reach {:.3g} GB/s", worst.evidence, path, equals),
         100.0 * (1 - worst.gbps / equals), look + "; to confirm: " + kAgain});
  };
  for (const auto& [gpu, worst] : slow.ends) {
    add_slow("gpu-port-slow", {gpu},
             fmt::format("{} is slower with every peer than the peers are with each other", gpu),
             *worst);
  }
  for (const PairFigures* pair : slow.pairs) {
    add_slow(
        "gpu-pair-slow", {pair->a, pair->b},
        fmt::format("{} and {} are slower with each other than their equals", pair->a, pair->b),
        *pair);
  }
}

/// The best that a GPU reaches to or from any memory, by whatever means: that is its link's.
struct FindingRules::MemoryWay {
  std::size_t gpu = 0;
  const Figure* figure = nullptr;
  std::string ends;
};

void FindingRules::slow_gpu_memory() {
  std::map<std::pair<std::size_t, bool>, MemoryWay> best;  // by GPU, and whether from memory
  const auto take = [&](const Transfer& way, std::size_t gpu, bool down) {
    MemoryWay& known = best[{gpu, down}];
    const auto copies = way.edge->figures.find(kCopyEngineGbps);
    for (const Figure* f : {&way.edge->bandwidth_gbps,
                            copies == way.edge->figures.end() ? nullptr : &copies->second}) {
      if (f == nullptr || !f->measured) continue;
      if (known.figure != nullptr && !by_measured(known.figure, f)) continue;
      known = {gpu, f, way.edge->from + " → " + way.edge->to};
    }
  };
  for (const Transfer& way : transfers(NodeKind::kNumaNode, NodeKind::kGpu))
    take(way, way.to, true);
  for (const Transfer& way : transfers(NodeKind::kGpu, NodeKind::kNumaNode))
    take(way, way.from, false);
  std::map<std::tuple<std::size_t, std::string, bool>, std::vector<const Figure*>> equals;
  const auto class_of = [&](std::size_t gpu, bool down) {
    return std::tuple(tree_.above(gpu, NodeKind::kHost), node(gpu).label, down);
  };
  for (const auto& [key, way] : best) {
    if (way.figure != nullptr) equals[class_of(key.first, key.second)].push_back(way.figure);
  }
  const std::set<std::size_t> beside_pcie = gpus_linked_to_cpus();
  for (const auto& [key, way] : best) {
    if (way.figure == nullptr) continue;
    const auto& like = equals[class_of(key.first, key.second)];
    if (like.size() >= kLeastEquals) {
      const double usual = *median(like).measured;
      const std::string compared =
          fmt::format("its equals reach {:.3g} GB/s, the median of {}", usual, like.size());
      if (slow_memory_way(way, kMemoryShare, usual, compared)) continue;
    }
    const PciLink& link = node(way.gpu).pci_link;
    const bool loaded = node(way.gpu).attribute("link_state") == "under load";
    if (!loaded || !link.speed_gts || !link.width || beside_pcie.contains(way.gpu)) continue;
    const double most = pci_bandwidth_gbps(*link.speed_gts, *link.width);
    slow_memory_way(way, kLinkShare, most,
                    fmt::format("its link of {:g} GT/s x{} carries {:.3g} GB/s", *link.speed_gts,
                                *link.width, most));
  }
}

/// GPUs that reach memory by other links than PCIe.
std::set<std::size_t> FindingRules::gpus_linked_to_cpus() const {
  std::set<std::size_t> gpus;
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t to = tree_.index(edge.to);
    const bool link = !is_tree_edge(edge) && !is_measurement(edge) && edge.kind != "link";
    if (!link || to == TopologyTree::kNone || !is_processor(node(to).kind)) continue;
    gpus.insert(tree_.index(edge.from));
  }
  return gpus;
}

bool FindingRules::slow_memory_way(const MemoryWay& way, double share, double most,
                                   const std::string& compared) {
  if (high_of(*way.figure) >= share * most) return false;
  const TopologyNode& gpu = node(way.gpu);
  add({"gpu-memory-link-slow",
       Severity::kWarning,
       {gpu.id},
       fmt::format("{} reaches {:.0f} % of what it should: {}", way.ends,
                   100 * *way.figure->measured / most, compared),
       fmt::format("{:.3g} GB/s measured", *way.figure->measured),
       100.0 * (1 - *way.figure->measured / most),
       fmt::format("lspci -vv -s {} | grep LnkSta while it is busy, also of the bridges above it; "
                   "what else uses them: nvidia-smi dmon -s t; to confirm: {}",
                   gpu.bdf, kAgain)});
  return true;
}

}  // namespace topocoll
