#include "planner/simplex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace topocoll {
namespace {

constexpr double kCostTolerance = 1e-9;
constexpr double kPivotTolerance = 1e-9;
constexpr double kFeasibility = 1e-9;
constexpr double kPerturbation = 1e-6;
constexpr int kPivotsPerRebuild = 100;
constexpr int kStepsWithoutGain = 2000;
constexpr int kNone = std::numeric_limits<int>::max();

/// A fixed number of 0.5 to 1 that looks random.
double jitter(std::size_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return 0.5 + static_cast<double>((x ^ (x >> 31)) >> 12) * 0x1p-53;
}

Status trouble(std::string text) {
  return Status(Cause::kInternal, "linear program: numerical trouble: " + std::move(text));
}

}  // namespace

LinearProgram::LinearProgram(std::vector<double> rhs) : rhs_(std::move(rhs)) {
  const std::size_t m = rhs_.size();
  double largest = 0;
  for (double b : rhs_) largest = std::max(largest, std::isfinite(b) ? b : 0);
  if (largest <= 0) largest = 1;
  for (std::size_t i = 0; i < m; ++i) {
    if (!std::isfinite(rhs_[i]) || rhs_[i] < 0) {
      wrong_ = Status(Cause::kInvalidArgument,
                      fmt::format("linear program: the right-hand side of row {} is {}; give a "
                                  "finite number of 0 or more",
                                  i, rhs_[i]));
      return;
    }
    row_scale_.push_back(1 / (rhs_[i] > 0 ? rhs_[i] : largest));
    scaled_rhs_.push_back(rhs_[i] * row_scale_[i]);
    perturbed_rhs_.push_back(scaled_rhs_[i] + kPerturbation * jitter(i));
    basis_.variable.push_back(~static_cast<int>(i));
  }
  basis_.inverse.assign(m * m, 0);
  for (std::size_t i = 0; i < m; ++i) basis_.inverse[i * m + i] = 1;
  basis_.value = perturbed_rhs_;
}

int LinearProgram::add_column(double objective, std::span<const LpEntry> entries) {
  const int column = columns();
  columns_.push_back({objective, {entries.begin(), entries.end()}});
  if (!wrong_.ok()) return column;
  const auto complain = [&](const std::string& what) {
    wrong_ =
        Status(Cause::kInvalidArgument, fmt::format("linear program: column {}: {}", column, what));
    return column;
  };
  if (!std::isfinite(objective)) return complain(fmt::format("its cost is {}", objective));
  std::vector<LpEntry> sorted(entries.begin(), entries.end());
  std::sort(sorted.begin(), sorted.end(), [](LpEntry a, LpEntry b) { return a.row < b.row; });
  double largest = 0;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    const auto [row, value] = sorted[k];
    if (row < 0 || row >= rows()) {
      return complain(fmt::format("row {} does not exist, there are {}", row, rows()));
    }
    if (k > 0 && sorted[k - 1].row == row) return complain(fmt::format("row {} twice", row));
    if (!std::isfinite(value)) return complain(fmt::format("row {} holds {}", row, value));
    sorted[k].value = value * row_scale_[index(row)];
    largest = std::max(largest, std::abs(sorted[k].value));
  }
  const double scale = largest > 0 ? 1 / largest : 1;
  for (LpEntry& e : sorted) e.value *= scale;
  column_scale_.push_back(scale);
  cost_.push_back(objective * scale);
  largest_cost_ = std::max(largest_cost_, std::abs(cost_.back()));
  scaled_.push_back(std::move(sorted));
  return column;
}

std::vector<double> LinearProgram::ftran(const Basis& basis, int variable) const {
  const std::size_t m = rhs_.size();
  std::vector<double> result(m, 0);
  const auto add = [&](int row, double value) {
    const double* entry = basis.inverse.data() + row;
    for (std::size_t i = 0; i < m; ++i) result[i] += entry[i * m] * value;
  };
  if (variable < 0) {
    add(~variable, 1);
  } else {
    for (const auto& [row, value] : scaled_[index(variable)]) add(row, value);
  }
  return result;
}

std::vector<double> LinearProgram::duals(const Basis& basis) const {
  const std::size_t m = rhs_.size();
  std::vector<double> result(m, 0);
  for (std::size_t i = 0; i < m; ++i) {
    const double cost = cost_of(basis.variable[i]);
    if (cost == 0) continue;
    const double* row = basis.inverse.data() + i * m;
    for (std::size_t k = 0; k < m; ++k) result[k] += cost * row[k];
  }
  return result;
}

double LinearProgram::reduced_cost(const std::vector<double>& dual, int variable) const {
  if (variable < 0) return -dual[index(~variable)];
  double result = cost_[index(variable)];
  for (const auto& [row, value] : scaled_[index(variable)]) result -= dual[index(row)] * value;
  return result;
}

void LinearProgram::pivot(Basis& basis, int row, int entering,
                          const std::vector<double>& direction) {
  const std::size_t m = rhs_.size();
  const std::size_t p = index(row);
  double* pivot_row = basis.inverse.data() + p * m;
  const double factor = 1 / direction[p];
  for (std::size_t k = 0; k < m; ++k) pivot_row[k] *= factor;
  basis.value[p] *= factor;
  for (std::size_t i = 0; i < m; ++i) {
    if (i == p || direction[i] == 0) continue;
    double* other = basis.inverse.data() + i * m;
    for (std::size_t k = 0; k < m; ++k) other[k] -= direction[i] * pivot_row[k];
    basis.value[i] -= direction[i] * basis.value[p];
  }
  basis.variable[p] = entering;
  ++basis.pivots_since_rebuild;
}

Status LinearProgram::rebuild(Basis& basis, const std::vector<double>& rhs) {
  const std::size_t m = rhs_.size();
  const std::vector<int> old = basis.variable;
  std::vector<int> structural;
  std::vector<char> taken(m, 0);
  basis.inverse.assign(m * m, 0);
  for (std::size_t i = 0; i < m; ++i) basis.inverse[i * m + i] = 1;
  basis.value.assign(m, 0);
  for (std::size_t i = 0; i < m; ++i) basis.variable[i] = ~static_cast<int>(i);
  for (int v : old) {
    if (v >= 0) {
      structural.push_back(v);
    } else {
      taken[index(~v)] = 1;
    }
  }
  std::sort(structural.begin(), structural.end());
  for (int v : structural) {
    const std::vector<double> direction = ftran(basis, v);
    int best = -1;
    for (std::size_t i = 0; i < m; ++i) {
      if (taken[i] == 0 &&
          (best < 0 || std::abs(direction[i]) > std::abs(direction[index(best)]))) {
        best = static_cast<int>(i);
      }
    }
    if (best < 0 || std::abs(direction[index(best)]) < kPivotTolerance) {
      return trouble(fmt::format("the basis became singular at column {}", v));
    }
    pivot(basis, best, v, direction);
    taken[index(best)] = 1;
  }
  set_values(basis, rhs);
  basis.pivots_since_rebuild = 0;
  return Status();
}

void LinearProgram::set_values(Basis& basis, const std::vector<double>& rhs) const {
  const std::size_t m = rhs_.size();
  for (std::size_t i = 0; i < m; ++i) {
    double value = 0;
    for (std::size_t k = 0; k < m; ++k) value += basis.inverse[i * m + k] * rhs[k];
    basis.value[i] = value;
  }
}

void LinearProgram::mark_basic(const Basis& basis) {
  basic_.assign(columns_.size(), 0);
  slack_basic_.assign(rhs_.size(), 0);
  for (int v : basis.variable) {
    if (v < 0) {
      slack_basic_[index(~v)] = 1;
    } else {
      basic_[index(v)] = 1;
    }
  }
}

template <class Visit>
void LinearProgram::for_each_nonbasic(Visit visit) const {
  for (int j = 0; j < columns(); ++j) {
    if (basic_[index(j)] == 0) visit(j);
  }
  for (int i = 0; i < rows(); ++i) {
    if (slack_basic_[index(i)] == 0) visit(~i);
  }
}

int LinearProgram::choose_entering(const std::vector<double>& dual, bool bland) const {
  double best = kCostTolerance * std::max(largest_cost_, std::numeric_limits<double>::min());
  int entering = kNone;
  for_each_nonbasic([&](int v) {
    if (bland && entering != kNone) return;
    const double gain = reduced_cost(dual, v);
    if (gain > best) {
      best = gain;
      entering = v;
    }
  });
  return entering;
}

int LinearProgram::choose_leaving(const Basis& basis, const std::vector<double>& direction,
                                  bool bland) const {
  double shortest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < direction.size(); ++i) {
    if (direction[i] < kPivotTolerance) continue;
    shortest = std::min(shortest, std::max(basis.value[i], 0.0) / direction[i]);
  }
  int leaving = -1;
  for (std::size_t i = 0; i < direction.size(); ++i) {
    if (direction[i] < kPivotTolerance) continue;
    if (std::max(basis.value[i], 0.0) / direction[i] > shortest + 1e-12) continue;
    const auto at = index(leaving);
    // Among equals: the largest pivot, for the inverse's sake; under Bland's rule the first
    // variable.
    if (leaving < 0 ||
        (bland ? basis.variable[i] < basis.variable[at] : direction[i] > direction[at])) {
      leaving = static_cast<int>(i);
    }
  }
  return leaving;
}

Status LinearProgram::primal(Basis& basis, std::int64_t max_pivots, std::int64_t& pivots) {
  int without_gain = 0;
  bool rebuilt = false;
  for (;;) {
    if (basis.pivots_since_rebuild >= kPivotsPerRebuild) {
      if (Status s = rebuild(basis, perturbed_rhs_); !s.ok()) return s;
    }
    mark_basic(basis);
    const bool bland = without_gain > kStepsWithoutGain;
    const std::vector<double> dual = duals(basis);
    const int entering = choose_entering(dual, bland);
    if (entering == kNone) {
      // What looks optimal may be so only by the rounding errors of many pivots.
      if (rebuilt || basis.pivots_since_rebuild == 0) return Status();
      if (Status s = rebuild(basis, perturbed_rhs_); !s.ok()) return s;
      rebuilt = true;
      continue;
    }
    const std::vector<double> direction = ftran(basis, entering);
    const int leaving = choose_leaving(basis, direction, bland);
    if (leaving < 0) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("linear program: unbounded: {} can grow without limit",
                                entering < 0 ? fmt::format("the slack of row {}", ~entering)
                                             : fmt::format("column {}", entering)));
    }
    const double step = std::max(basis.value[index(leaving)], 0.0) / direction[index(leaving)];
    without_gain = step > 1e-13 ? 0 : without_gain + 1;
    pivot(basis, leaving, entering, direction);
    rebuilt = false;
    if (++pivots >= max_pivots) {
      return Status(Cause::kInternal,
                    fmt::format("linear program: no optimum after {} pivots", pivots));
    }
  }
}

int LinearProgram::choose_dual_entering(const Basis& basis, int row) const {
  const std::size_t m = rhs_.size();
  const double* inverse_row = basis.inverse.data() + index(row) * m;
  const std::vector<double> dual = duals(basis);
  double best_ratio = std::numeric_limits<double>::infinity();
  double best_size = 0;
  int entering = kNone;
  for_each_nonbasic([&](int v) {
    double alpha = 0;
    if (v < 0) {
      alpha = inverse_row[~v];
    } else {
      for (const auto& [r, value] : scaled_[index(v)]) alpha += inverse_row[r] * value;
    }
    if (alpha > -kPivotTolerance) return;
    const double ratio = std::min(reduced_cost(dual, v), 0.0) / alpha;
    if (ratio < best_ratio - 1e-12 || (ratio <= best_ratio + 1e-12 && -alpha > best_size)) {
      best_ratio = std::min(best_ratio, ratio);
      best_size = -alpha;
      entering = v;
    }
  });
  return entering;
}

Status LinearProgram::dual(Basis& basis, std::int64_t max_pivots, std::int64_t& pivots) {
  for (;;) {
    if (basis.pivots_since_rebuild >= kPivotsPerRebuild) {
      if (Status s = rebuild(basis, scaled_rhs_); !s.ok()) return s;
    }
    const auto lowest = std::min_element(basis.value.begin(), basis.value.end());
    if (lowest == basis.value.end() || *lowest >= -kFeasibility) return Status();
    const int row = static_cast<int>(lowest - basis.value.begin());
    mark_basic(basis);
    const int entering = choose_dual_entering(basis, row);
    if (entering == kNone) return trouble(fmt::format("row {} cannot be made feasible", row));
    pivot(basis, row, entering, ftran(basis, entering));
    if (++pivots >= max_pivots) {
      return Status(Cause::kInternal,
                    fmt::format("linear program: no optimum after {} pivots", pivots));
    }
  }
}

LpSolution LinearProgram::extract(const Basis& basis) const {
  LpSolution solution;
  solution.x.assign(columns_.size(), 0);
  for (std::size_t i = 0; i < basis.variable.size(); ++i) {
    const int v = basis.variable[i];
    if (v >= 0) solution.x[index(v)] = std::max(basis.value[i], 0.0) * column_scale_[index(v)];
  }
  for (std::size_t j = 0; j < columns_.size(); ++j) {
    solution.objective += columns_[j].objective * solution.x[j];
  }
  solution.dual = duals(basis);
  for (std::size_t i = 0; i < solution.dual.size(); ++i) {
    solution.dual[i] = std::max(solution.dual[i], 0.0) * row_scale_[i];
  }
  return solution;
}

Result<LpSolution> LinearProgram::solve(std::int64_t max_pivots) {
  if (!wrong_.ok()) return wrong_;
  std::int64_t pivots = 0;
  if (Status s = primal(basis_, max_pivots, pivots); !s.ok()) return s;
  Basis exact = basis_;
  set_values(exact, scaled_rhs_);
  if (Status s = dual(exact, max_pivots, pivots); !s.ok()) return s;
  LpSolution solution = extract(exact);
  solution.pivots = pivots;
  return solution;
}

}  // namespace topocoll
