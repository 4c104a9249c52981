// A linear program max c^T x, A x <= b, x >= 0 with b >= 0, solved by the revised simplex method.
//
//   LinearProgram lp({capacity of row 0, capacity of row 1});
//   lp.add_column(1.0, {{0, 1.0}, {1, 2.0}});
//   auto s = lp.solve();                      // s->x, s->dual, s->objective
//   lp.add_column(...); s = lp.solve();       // goes on from the last basis: column generation
//
// Method. The inverse of the basis is dense (8 m^2 bytes for m rows), columns are sparse; a pivot
// costs O(m^2) and the inverse is rebuilt every 100 pivots. The entering column has the largest
// reduced cost, ties to the lowest index. Against stalling and cycling in degenerate programs (many
// equal capacities), the right-hand side is enlarged by fixed pseudo-random amounts of at most 1e-6
// of itself; dual simplex steps then lead from that optimum to one of the program as given. Should
// steps without gain pile up all the same, Bland's rule (1977) takes over until there is a gain.
// Scaling. Rows are divided by their right-hand side (where that is 0: by the largest one), columns
// then by their largest entry.
// Tolerances, all after scaling: a column enters above a reduced cost of 1e-9 of the largest cost;
// a pivot is at least 1e-9; x is feasible to 1e-9 per row. Determinism: the same calls give the
// same bits on one machine. Sizes: meant for up to some 1,000 rows and 100,000 columns. Thread
// rule: one thread at a time. Failure rule: kInvalidArgument for numbers that are not finite, rows
// that do not exist, a negative right-hand side or an unbounded program (names the column);
// kInternal for numerical trouble or when the limit of pivots is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

/// One nonzero of a column.
struct LpEntry {
  int row = 0;
  double value = 0;
};

struct LpColumn {
  double objective = 0;
  std::vector<LpEntry> entries;  ///< each row at most once, in any order
};

struct LpSolution {
  double objective = 0;
  std::vector<double> x;     ///< per column, in the order they were added
  std::vector<double> dual;  ///< per row, >= 0; at the optimum b^T dual = objective
  std::int64_t pivots = 0;   ///< of this solve
};

class LinearProgram {
 public:
  /// One row for each right-hand side.
  explicit LinearProgram(std::vector<double> rhs);

  [[nodiscard]] int rows() const { return static_cast<int>(rhs_.size()); }
  [[nodiscard]] int columns() const { return static_cast<int>(columns_.size()); }

  /// Appends a column and returns its index. Wrong numbers are reported by the next solve().
  int add_column(double objective, std::span<const LpEntry> entries);

  /// The optimum over the columns added so far.
  Result<LpSolution> solve(std::int64_t max_pivots = 1'000'000);

 private:
  /// Variables are numbered: column j is j, the slack of row i is ~i.
  struct Basis {
    std::vector<int> variable;    ///< the basic variable of each row
    std::vector<double> inverse;  ///< of the matrix of basic columns, row major
    std::vector<double> value;    ///< of the basic variables
    int pivots_since_rebuild = 0;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] double cost_of(int variable) const {
    return variable < 0 ? 0 : cost_[index(variable)];
  }
  /// The inverse times the variable's column.
  [[nodiscard]] std::vector<double> ftran(const Basis& basis, int variable) const;
  [[nodiscard]] std::vector<double> duals(const Basis& basis) const;
  [[nodiscard]] double reduced_cost(const std::vector<double>& dual, int variable) const;
  void pivot(Basis& basis, int row, int entering, const std::vector<double>& direction);
  void set_values(Basis& basis, const std::vector<double>& rhs) const;
  Status rebuild(Basis& basis, const std::vector<double>& rhs);
  void mark_basic(const Basis& basis);
  template <class Visit>
  void for_each_nonbasic(Visit visit) const;
  [[nodiscard]] int choose_entering(const std::vector<double>& dual, bool bland) const;
  [[nodiscard]] int choose_leaving(const Basis& basis, const std::vector<double>& direction,
                                   bool bland) const;
  [[nodiscard]] int choose_dual_entering(const Basis& basis, int row) const;
  Status primal(Basis& basis, std::int64_t max_pivots, std::int64_t& pivots);
  Status dual(Basis& basis, std::int64_t max_pivots, std::int64_t& pivots);
  [[nodiscard]] LpSolution extract(const Basis& basis) const;

  std::vector<double> rhs_;
  std::vector<LpColumn> columns_;
  Status wrong_;

  std::vector<double> row_scale_;
  std::vector<double> scaled_rhs_;
  std::vector<double> perturbed_rhs_;
  std::vector<std::vector<LpEntry>> scaled_;  ///< columns after scaling
  std::vector<double> column_scale_;
  std::vector<double> cost_;  ///< after scaling
  double largest_cost_ = 0;
  std::vector<char> basic_;        ///< per column
  std::vector<char> slack_basic_;  ///< per row
  Basis basis_;  ///< optimal for the perturbed program; the next solve starts here
};

}  // namespace topocoll
