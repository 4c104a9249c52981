// Classes of pairs of CPUs: by the nearest thing that both stand below, and by the types of their
// cores. What passes between two CPUs is alike within a class.
//
// Thread rule: one thread at a time. Failure rule: pairs of what is no CPU have no class.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topocoll/topology.h"
#include "topology/tree.h"

namespace topocoll {

/// Two CPUs by the kernel's numbers, the lower first.
struct CpuPair {
  int a = 0;
  int b = 0;
  std::string
      near;  ///< the class: "l3", "numa", ..., and the types of the cores, where there are such
};

/// Tells the classes of pairs of CPUs; refers to its topology.
class PairClasses {
 public:
  explicit PairClasses(const Topology& topology) : topology_(topology), tree_(topology) {}
  CpuPair of(std::size_t a, std::size_t b);  ///< by index among the nodes
  std::optional<CpuPair> of(const std::string& a, const std::string& b);

 private:
  /// The nearest node above both.
  [[nodiscard]] std::string meeting(std::size_t a, std::size_t b);
  const std::vector<std::size_t>& path(std::size_t cpu);
  /// "IntelAtom" and the like; empty where all cores are alike.
  [[nodiscard]] std::string type(std::size_t cpu) const;

  const Topology& topology_;
  TopologyTree tree_;
  std::map<std::size_t, std::vector<std::size_t>> paths_;
};

}  // namespace topocoll
