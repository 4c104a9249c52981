#include "planner/arborescence.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "planner/max_flow.h"

namespace topocoll {
namespace {

/// A tree under way.
struct Growing {
  int root = 0;
  std::int64_t weight = 0;
  std::vector<int> vertices;  ///< in the order of joining
  std::vector<bool> has;
  std::vector<int> links;
};

class Packer {
 public:
  Packer(int ranks, const std::vector<LogicalLink>& links, const std::vector<std::int64_t>& demand)
      : ranks_(ranks), links_(links), outgoing_(at(ranks)) {
    for (std::size_t l = 0; l < links.size(); ++l) {
      left_.push_back(links[l].capacity);
      outgoing_[at(links[l].from)].push_back(static_cast<int>(l));
    }
    for (int r = 0; r < ranks; ++r) {
      if (demand[at(r)] == 0) continue;
      Growing tree{r, demand[at(r)], {r}, std::vector<bool>(at(ranks), false), {}};
      tree.has[at(r)] = true;
      open_.push_back(std::move(tree));
    }
  }

  Result<std::vector<Arborescence>> run() {
    while (!open_.empty()) {
      Growing tree = std::move(open_.front());
      open_.pop_front();
      while (static_cast<int>(tree.vertices.size()) < ranks_) {
        if (!grow(tree)) {
          return Status(Cause::kUnsupported,
                        fmt::format("the links do not carry {} units from rank {} to all others",
                                    tree.weight, tree.root));
        }
      }
      done_.push_back({tree.root, tree.weight, std::move(tree.links)});
    }
    std::stable_sort(done_.begin(), done_.end(), [](const Arborescence& a, const Arborescence& b) {
      return a.root != b.root ? a.root < b.root : a.weight > b.weight;
    });
    return std::move(done_);
  }

 private:
  /// Adds a link to `tree`; splits it if no link has room for the whole.
  bool grow(Growing& tree) {
    FlowCheck check(*this, tree);
    int best = -1;
    std::int64_t most = 0;
    for (const int x : tree.vertices) {
      for (const int l : outgoing_[at(x)]) {
        if (tree.has[at(links_[at(l)].to)] || left_[at(l)] <= most) continue;
        const std::int64_t room = check.room(l, std::min(tree.weight, left_[at(l)]));
        if (room <= most) continue;
        best = l;
        most = room;
        if (most == tree.weight) break;
      }
      if (most == tree.weight) break;
    }
    if (best < 0) return false;
    if (most < tree.weight) {
      Growing rest = tree;
      rest.weight -= most;
      tree.weight = most;
      open_.push_front(std::move(rest));
    }
    left_[at(best)] -= most;
    const int y = links_[at(best)].to;
    tree.links.push_back(best);
    tree.vertices.push_back(y);
    tree.has[at(y)] = true;
    return true;
  }

  /// The network for one step of one tree: the links' capacity left, and the other unfinished trees
  /// as ways from the source into any of their vertices.
  class FlowCheck {
   public:
    FlowCheck(const Packer& packer, const Growing& tree)
        : packer_(packer),
          source_(packer.ranks_ + static_cast<int>(packer.open_.size())),
          network_(source_ + 1) {
      std::vector<std::int64_t> between(at(packer.ranks_) * at(packer.ranks_), 0);
      for (std::size_t l = 0; l < packer.links_.size(); ++l) {
        const LogicalLink& link = packer.links_[l];
        between[at(link.from) * at(packer.ranks_) + at(link.to)] += packer.left_[l];
      }
      for (int a = 0; a < packer.ranks_; ++a) {
        for (int b = a + 1; b < packer.ranks_; ++b) {
          const std::int64_t there = between[at(a) * at(packer.ranks_) + at(b)];
          const std::int64_t back = between[at(b) * at(packer.ranks_) + at(a)];
          if (there > 0 || back > 0) network_.add_arc(a, b, there, back);
        }
      }
      for (std::size_t i = 0; i < packer.open_.size(); ++i) {
        const Growing& other = packer.open_[i];
        others_ += other.weight;
        if (other.vertices.size() == 1) {
          network_.add_arc(source_, other.root, other.weight);
          continue;
        }
        const int entry = packer.ranks_ + static_cast<int>(i);
        network_.add_arc(source_, entry, other.weight);
        for (const int v : other.vertices) network_.add_arc(entry, v, MaxFlow::kUnlimited / 4);
      }
      for (const int v : tree.vertices) {
        starts_.push_back({v, network_.add_arc(source_, v, 0)});
      }
    }

    /// How much of `wanted` the tree may take on link `l`.
    std::int64_t room(int l, std::int64_t wanted) {
      const LogicalLink& link = packer_.links_[at(l)];
      for (const auto& [vertex, arc] : starts_) {
        network_.set_capacity(arc, vertex == link.from ? MaxFlow::kUnlimited / 4 : 0);
      }
      return network_.run(source_, link.to, others_ + wanted) - others_;
    }

   private:
    const Packer& packer_;
    int source_;
    MaxFlow network_;
    std::int64_t others_ = 0;
    std::vector<std::pair<int, int>> starts_;
  };

  int ranks_;
  const std::vector<LogicalLink>& links_;
  std::vector<std::int64_t> left_;
  std::vector<std::vector<int>> outgoing_;
  std::deque<Growing> open_;
  std::vector<Arborescence> done_;
};

}  // namespace

Result<std::vector<Arborescence>> pack_arborescences(int ranks,
                                                     const std::vector<LogicalLink>& links,
                                                     const std::vector<std::int64_t>& demand) {
  return Packer(ranks, links, demand).run();
}

}  // namespace topocoll
