#include "probe/contention.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/index.h"

namespace topocoll {
namespace {

using Gpus = std::vector<int>;  // ascending

/// Capacities that differ by less than this factor are of one level of the tree.
constexpr double kSameLevel = 1.1;
/// What others gain when a flow ends, if they share a full link with it.
constexpr double kGain = 1.04;
/// Memory that CPUs read this many times as fast is not what limits GPUs.
constexpr double kMemoryToSpare = 2;

bool holds(const Gpus& all, const Gpus& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

bool disjoint(const Gpus& a, const Gpus& b) {
  return std::none_of(a.begin(), a.end(),
                      [&](int g) { return std::binary_search(b.begin(), b.end(), g); });
}

Gpus join(const Gpus& a, const Gpus& b) {
  Gpus both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// What `some` carry, where `rates` are those of `all`.
double rate(const Gpus& some, const Gpus& all, const std::vector<double>& rates) {
  double total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::binary_search(some.begin(), some.end(), all[i])) total += rates[i];
  }
  return total;
}

/// Sets of parts that have been found to belong together.
class Parties {
 public:
  explicit Parties(std::size_t size) : leader_(size) {
    std::iota(leader_.begin(), leader_.end(), std::size_t{0});
  }
  std::size_t of(std::size_t i) {
    while (leader_[i] != i) i = leader_[i] = leader_[leader_[i]];
    return i;
  }
  void unite(std::size_t a, std::size_t b) {
    leader_[std::max(of(a), of(b))] = std::min(of(a), of(b));
  }

 private:
  std::vector<std::size_t> leader_;
};

/// The tree as flows of one direction see it.
class OneWay {
 public:
  OneWay(const MemoryWays& ways, bool up, const JointRates& rates)
      : ways_(ways), up_(up), rates_(rates) {}

  Status find() {
    for (int g = 0; g < static_cast<int>(ways_.near.size()); ++g) {
      if (ways_.near[at(g)] >= 0 && alone(g) > 0) tops_.push_back({{g}, alone(g), true});
    }
    // The more parts a test needs, the more it can miss, so its turn comes when those before it
    // find nothing any more.
    for (std::size_t test = 0; test < 3;) {
      const std::size_t before = tops_.size();
      Status s = test == 0 ? join_pairs() : test == 1 ? join_hinted() : join_wide();
      if (!s.ok()) return s;
      test = tops_.size() < before ? 0 : test + 1;
    }
    const std::vector<Gpus> all = found_;
    std::erase_if(found_, [&](const Gpus& gpus) {
      return may_be_memory(gpus) || std::any_of(all.begin(), all.end(), [&](const Gpus& around) {
               return around_as_narrow(around, gpus);
             });
    });
    return Status();
  }
  [[nodiscard]] const std::vector<Gpus>& found() const { return found_; }

  /// What these GPUs carry when all of them and no others are busy.
  Result<double> carried(const Gpus& gpus) {
    if (const auto known = carried_.find(gpus); known != carried_.end()) return known->second;
    auto each = measure(gpus);
    if (!each.ok()) return each.status();
    return carried_[gpus] = sum(*each);
  }

 private:
  /// A cluster, or a GPU, that belongs to no larger one so far.
  struct Part {
    Gpus gpus;
    double gbps = 0;
    bool fresh = false;  ///< pairs with it are still to be tested
  };
  struct Shared {
    double gbps = 0;
    std::size_t a = 0;  ///< indices into tops_
    std::size_t b = 0;
  };
  /// Parts that single linkage has joined so far.
  struct Linked {
    Gpus gpus;
    double level = 0;  ///< of the link that they share; 0: one part
  };

  [[nodiscard]] double alone(int gpu) const {
    return up_ ? ways_.alone[at(gpu)].up_gbps : ways_.alone[at(gpu)].down_gbps;
  }

  Result<std::vector<double>> measure(const Gpus& gpus) {
    std::vector<GpuFlow> flows;
    for (const int g : gpus) {
      const int memory = ways_.near[at(g)];
      flows.push_back(up_ ? up_flow(g, memory, ways_.copy_engines)
                          : down_flow(g, memory, ways_.copy_engines));
    }
    return rates_(flows);
  }

  /// Whether these carry clearly less together than each alone, twice in a row.
  Result<bool> share(const Gpus& gpus, double alone_gbps) {
    double total = 0;
    for (int times = 0; times < 2; ++times) {
      auto each = measure(gpus);
      if (!each.ok()) return each.status();
      if (sum(*each) >= kSharedBelow * alone_gbps) return false;
      total += sum(*each);
    }
    carried_[gpus] = total / 2;
    return true;
  }

  /// Single linkage over all pairs, the narrowest first.
  Status join_pairs() {
    std::vector<Shared> shared;
    for (std::size_t a = 0; a < tops_.size(); ++a) {
      for (std::size_t b = a + 1; b < tops_.size(); ++b) {
        if (!tops_[a].fresh && !tops_[b].fresh) continue;
        const Gpus both = join(tops_[a].gpus, tops_[b].gpus);
        auto together = share(both, tops_[a].gbps + tops_[b].gbps);
        if (!together.ok()) return together.status();
        if (*together) shared.push_back({carried_[both], a, b});
      }
    }
    for (Part& part : tops_) part.fresh = false;
    std::stable_sort(shared.begin(), shared.end(),
                     [](const Shared& x, const Shared& y) { return x.gbps < y.gbps; });
    std::vector<Linked> linked;
    for (const Part& part : tops_) linked.push_back({part.gpus, 0});
    Parties parties(tops_.size());
    for (const Shared& pair : shared) {
      const std::size_t a = parties.of(pair.a);
      const std::size_t b = parties.of(pair.b);
      if (a == b) continue;
      Linked joined{join(linked[a].gpus, linked[b].gpus), pair.gbps};
      for (const std::size_t part : {a, b}) {
        if (linked[part].level <= 0) continue;
        if (pair.gbps > kSameLevel * linked[part].level) {
          if (auto gbps = carried(linked[part].gpus); !gbps.ok()) return gbps.status();
          found_.push_back(linked[part].gpus);
        } else {
          joined.level = std::min(joined.level, linked[part].level);
        }
      }
      parties.unite(a, b);
      linked[parties.of(a)] = std::move(joined);
    }
    return replace(parties);
  }

  /// What is said to share, and what is near one memory, by all its GPUs.
  Status join_hinted() {
    std::vector<Gpus> hints = ways_.declared;
    std::map<int, Gpus> near;
    for (int g = 0; g < static_cast<int>(ways_.near.size()); ++g)
      near[ways_.near[at(g)]].push_back(g);
    for (const auto& [memory, gpus] : near) hints.push_back(gpus);
    std::stable_sort(hints.begin(), hints.end(),
                     [](const Gpus& x, const Gpus& y) { return x.size() < y.size(); });
    for (const Gpus& hint : hints) {
      std::vector<std::size_t> parts;
      for (std::size_t i = 0; i < tops_.size(); ++i) {
        if (holds(hint, tops_[i].gpus)) parts.push_back(i);
      }
      // Two parts were tested as a pair, and all of them are tested as such.
      if (parts.size() < 3 || parts.size() == tops_.size()) continue;
      if (Status s = join_if_shared(parts); !s.ok()) return s;
    }
    return Status();
  }

  Status join_if_shared(const std::vector<std::size_t>& parts) {
    Gpus gpus;
    double alone_gbps = 0;
    for (const std::size_t i : parts) {
      gpus = join(gpus, tops_[i].gpus);
      alone_gbps += tops_[i].gbps;
    }
    auto together = share(gpus, alone_gbps);
    if (!together.ok()) return together.status();
    if (!*together) return Status();
    Parties parties(tops_.size());
    for (const std::size_t i : parts) parties.unite(parts.front(), i);
    return replace(parties);
  }

  /// Who gains when a part pauses shares a full link with it.
  Status join_wide() {
    if (tops_.size() < 3) return Status();
    Gpus all;
    for (const Part& part : tops_) all = join(all, part.gpus);
    auto busy = measure(all);
    if (!busy.ok()) return busy.status();
    const bool full = std::any_of(tops_.begin(), tops_.end(), [&](const Part& part) {
      return rate(part.gpus, all, *busy) < kSharedBelow * part.gbps;
    });
    if (!full) return Status();
    auto again = measure(all);  // all that follows is compared with it
    if (!again.ok()) return again.status();
    for (std::size_t i = 0; i < all.size(); ++i) (*busy)[i] = ((*busy)[i] + (*again)[i]) / 2;
    Parties parties(tops_.size());
    for (std::size_t pausing = 0; pausing < tops_.size(); ++pausing) {
      std::vector<int> gains(tops_.size(), 0);
      for (int times = 0; times < 2; ++times) {
        if (Status s = count_gains(pausing, all, *busy, gains); !s.ok()) return s;
      }
      for (std::size_t i = 0; i < tops_.size(); ++i) {
        if (gains[i] == 2) parties.unite(pausing, i);
      }
    }
    std::map<std::size_t, std::vector<Gpus>> groups;
    for (std::size_t i = 0; i < tops_.size(); ++i) groups[parties.of(i)].push_back(tops_[i].gpus);
    for (const auto& [leader, members] : groups) {
      std::vector<std::size_t> parts;  // their places have moved if a group before was joined
      for (std::size_t i = 0; i < tops_.size(); ++i) {
        if (std::find(members.begin(), members.end(), tops_[i].gpus) != members.end()) {
          parts.push_back(i);
        }
      }
      if (parts.size() < 2) continue;
      if (Status s = join_if_shared(parts); !s.ok()) return s;
    }
    return Status();
  }

  /// Counts for each part whether it carries more while `pausing` is still than in `busy`.
  Status count_gains(std::size_t pausing, const Gpus& all, const std::vector<double>& busy,
                     std::vector<int>& gains) {
    Gpus others;
    std::set_difference(all.begin(), all.end(), tops_[pausing].gpus.begin(),
                        tops_[pausing].gpus.end(), std::back_inserter(others));
    auto now = measure(others);
    if (!now.ok()) return now.status();
    for (std::size_t i = 0; i < tops_.size(); ++i) {
      const Gpus& gpus = tops_[i].gpus;
      if (i != pausing && rate(gpus, others, *now) > kGain * rate(gpus, all, busy)) ++gains[i];
    }
    return Status();
  }

  /// Lets each party of several parts be one part.
  Status replace(Parties& parties) {
    std::map<std::size_t, Part> joined;
    for (std::size_t i = 0; i < tops_.size(); ++i) {
      Part& part = joined[parties.of(i)];
      const bool first = part.gpus.empty();
      part = first ? tops_[i] : Part{join(part.gpus, tops_[i].gpus), 0, true};
    }
    tops_.clear();
    for (auto& [leader, part] : joined) {
      if (part.gbps <= 0) {
        auto gbps = carried(part.gpus);
        if (!gbps.ok()) return gbps.status();
        part.gbps = *gbps;
        found_.push_back(part.gpus);
      }
      tops_.push_back(std::move(part));
    }
    return Status();
  }

  /// What `gpus` were seen to share is then the link of those around them.
  [[nodiscard]] bool around_as_narrow(const Gpus& around, const Gpus& gpus) const {
    return around.size() > gpus.size() && holds(around, gpus) &&
           carried_.at(around) <= kSameLevel * carried_.at(gpus);
  }

  /// Whether what these share may be the memory that they use: no other GPU near it tells. A link
  /// that one of them fills alone is none; nor is one that carries far less than CPUs read there.
  [[nodiscard]] bool may_be_memory(const Gpus& gpus) const {
    std::set<int> memories;
    double most = 0;
    for (const int g : gpus) {
      memories.insert(ways_.near[at(g)]);
      most = std::max(most, alone(g));
    }
    for (int g = 0; g < static_cast<int>(ways_.near.size()); ++g) {
      if (memories.contains(ways_.near[at(g)]) &&
          !std::binary_search(gpus.begin(), gpus.end(), g)) {
        return false;
      }
    }
    const double gbps = carried_.at(gpus);
    if (gbps <= kSameLevel * most) return false;
    double readable = 0;
    for (const int memory : memories) {
      if (at(memory) >= ways_.memory_gbps.size() || !ways_.memory_gbps[at(memory)]) return true;
      readable += *ways_.memory_gbps[at(memory)];
    }
    return readable < kMemoryToSpare * gbps;
  }

  const MemoryWays& ways_;
  bool up_;
  const JointRates& rates_;
  std::vector<Part> tops_;
  std::vector<Gpus> found_;
  std::map<Gpus, double> carried_;
};

/// The sets of both directions that fit into one tree.
std::vector<Gpus> one_family(const std::vector<Gpus>& down, const std::vector<Gpus>& up) {
  std::vector<Gpus> family;
  for (const auto* sets : {&down, &up}) {
    for (const Gpus& gpus : *sets) {
      const bool fits = std::all_of(family.begin(), family.end(), [&](const Gpus& other) {
        return other != gpus && (holds(other, gpus) || holds(gpus, other) || disjoint(other, gpus));
      });
      if (fits) family.push_back(gpus);
    }
  }
  std::sort(family.begin(), family.end(), [](const Gpus& x, const Gpus& y) {
    return x.size() != y.size() ? x.size() > y.size() : x < y;
  });
  return family;
}

Result<Carried> both_ways(OneWay& up, OneWay& down, const Gpus& gpus) {
  auto rising = up.carried(gpus);
  if (!rising.ok()) return rising.status();
  auto falling = down.carried(gpus);
  if (!falling.ok()) return falling.status();
  return Carried{*rising, *falling};
}

}  // namespace

GpuFlow up_flow(int gpu, int memory, bool copy_engine) {
  return {{GpuPlace::Kind::kGpu, gpu},
          {GpuPlace::Kind::kMemory, memory},
          copy_engine ? Mover::kCopyEngine : Mover::kStores};
}

GpuFlow down_flow(int gpu, int memory, bool copy_engine) {
  return {{GpuPlace::Kind::kMemory, memory},
          {GpuPlace::Kind::kGpu, gpu},
          copy_engine ? Mover::kCopyEngine : Mover::kLoads};
}

Result<ContentionTree> infer_tree(const MemoryWays& ways, const JointRates& rates) {
  OneWay up(ways, true, rates);
  OneWay down(ways, false, rates);
  for (OneWay* way : {&down, &up}) {
    if (Status s = way->find(); !s.ok()) return s;
  }
  ContentionTree tree;
  for (const Gpus& gpus : one_family(down.found(), up.found())) {
    GpuCluster cluster{gpus, -1, {}};
    for (std::size_t i = 0; i < tree.clusters.size(); ++i) {  // the least one comes last
      if (holds(tree.clusters[i].gpus, gpus)) cluster.parent = static_cast<int>(i);
    }
    auto carried = both_ways(up, down, gpus);
    if (!carried.ok()) return carried.status();
    cluster.carried = *carried;
    tree.clusters.push_back(std::move(cluster));
  }
  for (const Gpus& declared : ways.declared) {
    Gpus gpus = declared;
    std::erase_if(gpus, [&](int g) { return ways.near[at(g)] < 0; });
    Carried carried;
    if (!gpus.empty()) {
      auto measured = both_ways(up, down, gpus);
      if (!measured.ok()) return measured.status();
      carried = *measured;
    }
    tree.declared.push_back(carried);
  }
  return tree;
}

}  // namespace topocoll
