// MaxFlow: Dinic's algorithm on integer capacities (E. A. Dinic, 1970), with min cuts.
//
//   MaxFlow network(4);
//   int arc = network.add_arc(0, 1, 10);
//   network.run(0, 3, kUnlimited);                // value of the flow
//   network.source_side();                        // nodes on the source's side of a minimum cut
//
// run() starts from zero flow each time, so one network serves many pairs; capacities may be
// changed between runs. A limit stops early once that much flow is found. Thread rule: one thread
// at a time. Failure rule: nothing fails; the sum of the capacities around any node must stay below
// 2^62.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace topocoll {

class MaxFlow {
 public:
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 61;

  explicit MaxFlow(int nodes) : head_(static_cast<std::size_t>(nodes), -1) {}

  /// Returns the arc's number, for set_capacity(). `back` is the capacity of the opposite
  /// direction.
  int add_arc(int from, int to, std::int64_t capacity, std::int64_t back = 0);
  void set_capacity(int arc, std::int64_t capacity) {
    arcs_[static_cast<std::size_t>(2 * arc)].capacity = capacity;
  }
  [[nodiscard]] std::int64_t capacity(int arc) const {
    return arcs_[static_cast<std::size_t>(2 * arc)].capacity;
  }
  [[nodiscard]] int nodes() const { return static_cast<int>(head_.size()); }

  /// The maximum flow from `source` to `target`, or `limit` if that is less.
  std::int64_t run(int source, int target, std::int64_t limit = kUnlimited);

  /// After a run that did not stop at its limit: which nodes the source still reaches. The arcs
  /// that leave this set are a minimum cut.
  [[nodiscard]] std::vector<bool> source_side() const;

 private:
  struct Arc {
    int to = 0;
    int next = -1;  ///< next arc of the same node
    std::int64_t capacity = 0;
    std::int64_t left = 0;
  };
  bool levels(int source, int target);
  std::int64_t push(int node, int target, std::int64_t limit);

  std::vector<Arc> arcs_;  ///< arc 2i and its reverse 2i + 1
  std::vector<int> head_;
  std::vector<int> level_;
  std::vector<int> at_;
  std::vector<int> queue_;
};

}  // namespace topocoll
