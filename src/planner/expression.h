// Expressions over contributions: what a chunk holds while a plan is executed symbolically. Equal
// expressions have equal ids, so comparing two chunks is comparing two numbers.
// Thread rule: one thread at a time. Failure rule: nothing fails but for memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace topocoll {

/// A rank's input chunk.
struct Contribution {
  int rank = 0;
  int chunk = 0;
  friend auto operator<=>(const Contribution&, const Contribution&) = default;
};

class ExpressionPool {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNothing = 0;  ///< of a chunk that nobody wrote

  Id leaf(Contribution contribution);
  /// left op right.
  Id combine(Id left, Id right);

  /// How often each contribution occurs in the expression; counts stop at 2^32.
  [[nodiscard]] std::map<Contribution, std::uint64_t> contributions(Id id) const;
  /// "((0+1)+2)", the ranks in the order of evaluation; ends in "..." beyond `max_bytes`.
  [[nodiscard]] std::string to_string(Id id, std::size_t max_bytes) const;

 private:
  struct Node {
    std::uint32_t left = 0;   ///< or the rank of a leaf
    std::uint32_t right = 0;  ///< or its chunk
    bool is_leaf = false;
  };
  Id find_or_add(Node node);

  std::vector<Node> nodes_{Node{}};
  std::unordered_map<std::uint64_t, Id> leaves_;
  std::unordered_map<std::uint64_t, Id> sums_;
};

}  // namespace topocoll
