#include "planner/step_graph.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "planner/steps.h"

namespace topocoll {
namespace {

class Builder {
 public:
  explicit Builder(const std::vector<Step>& steps) : steps_(steps) {
    graph_.after.resize(steps.size());
    graph_.needs.assign(steps.size(), 0);
  }
  StepGraph run() {
    for (int s = 0; s < static_cast<int>(steps_.size()); ++s) add(s);
    for (auto& after : graph_.after) {
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      for (int s : after) ++graph_.needs[at(s)];
    }
    return std::move(graph_);
  }

 private:
  struct Cell {
    int writer = -1;
    std::vector<int> readers;
  };
  void edge(int before, int s) {
    if (before >= 0 && before != s) graph_.after[at(before)].push_back(s);
  }
  void add(int s) {
    const Step& step = steps_[at(s)];
    edge(barrier_, s);
    for (const ChunkRef& ref : step.source) {
      Cell& cell = cells_[{ref.buffer, ref.chunk}];
      edge(cell.writer, s);
      cell.readers.push_back(s);
    }
    if (has_target(step.kind)) {
      Cell& cell = cells_[{step.target.buffer, step.target.chunk}];
      edge(cell.writer, s);
      for (int reader : cell.readers) edge(reader, s);
      cell = {s, {}};
    }
    if (has_peer(step.kind)) {
      int& last = fifos_.try_emplace({step.kind, step.peer, step.channel}, -1).first->second;
      edge(last, s);
      last = s;
    }
    if (step.kind == StepKind::kSignal) {
      for (int before = std::max(barrier_, 0); before < s; ++before) edge(before, s);
    }
    if (step.kind == StepKind::kWait) barrier_ = s;
  }

  const std::vector<Step>& steps_;
  StepGraph graph_;
  std::map<std::pair<BufferId, int>, Cell> cells_;
  std::map<std::tuple<StepKind, int, int>, int> fifos_;
  int barrier_ = -1;
};

}  // namespace

StepGraph make_step_graph(const Plan& plan, int rank) {
  return Builder(plan.steps[at(rank)]).run();
}

}  // namespace topocoll
