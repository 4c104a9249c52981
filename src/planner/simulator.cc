#include "planner/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "planner/fair_share.h"
#include "planner/step_graph.h"
#include "planner/steps.h"
#include "planner/symbolic.h"

namespace topocoll {
namespace {

constexpr int kMaxWindows = 1 << 16;
constexpr std::int64_t kMaxInstances = std::int64_t{1} << 26;  ///< steps of all ranks and windows

Status invalid(std::string text) { return Status(Cause::kInvalidArgument, std::move(text)); }

class Simulation {
 public:
  Simulation(const Plan& plan, const Graph& graph, const Routes& routes, const CostModel& model,
             const SimulationOptions& options)
      : plan_(plan),
        graph_(graph),
        routes_(routes),
        model_(model),
        options_(options),
        unit_(graph.unit.to_double()),
        bytes_(chunk_bytes(plan, options.bytes) / options.windows),
        share_(in_gbps(routes.capacities(), unit_)) {
    result_.finish_ns.assign(at(plan.ranks), 0);
    result_.resource_bytes.assign(routes.capacities().size(), 0);
  }

  Status prepare() {
    if (Status s = read_paths(); !s.ok()) return s;
    for (int r = 0; r < plan_.ranks; ++r) {
      ranks_.emplace_back();
      Rank& rank = ranks_.back();
      rank.graph = make_step_graph(plan_, r);
      rank.start = options_.start_ns.empty() ? 0 : options_.start_ns[at(r)];
      const auto& steps = plan_.steps[at(r)];
      rank.needs.resize(at(options_.windows) * steps.size());
      rank.left.assign(at(options_.windows), static_cast<int>(steps.size()));
      for (int w = 0; w < options_.windows; ++w) {
        for (std::size_t s = 0; s < steps.size(); ++s) {
          // Also its own turn in the window before, and the room that an earlier window leaves.
          rank.needs[at(w) * steps.size() + s] =
              rank.graph.needs[s] + (w > 0 ? 1 : 0) + (w >= options_.slots ? 1 : 0);
        }
      }
      for (const Step& step : steps) {
        rank.fifo.push_back(-1);
        rank.place.push_back(0);
        if (!has_peer(step.kind)) continue;
        if (Status s = join_fifo(r, step, rank.fifo.back()); !s.ok()) return s;
        Fifo& fifo = fifos_[at(rank.fifo.back())];
        rank.place.back() = (fifo.from == r ? fifo.sends : fifo.receives)++;
      }
    }
    for (Fifo& fifo : fifos_) {
      const std::size_t messages = at(std::max(fifo.sends, fifo.receives)) * at(options_.windows);
      fifo.arrived.assign(messages, 0);
      fifo.taker.assign(messages, -1);
    }
    return Status();
  }

  Result<SimulationResult> run() {
    for (int r = 0; r < plan_.ranks; ++r) {
      Rank& rank = ranks_[at(r)];
      if (plan_.steps[at(r)].empty()) result_.finish_ns[at(r)] = rank.start;
      post(rank.start, Event::Kind::kStart, r, 0);
    }
    while (!events_.empty()) {
      now_ = events_.top().time;
      const double until = now_ * (1 + 1e-12) + 1e-9;
      while (!events_.empty() && events_.top().time <= until) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
        work();
      }
      if (changed_) reschedule();
    }
    for (int r = 0; r < plan_.ranks; ++r) {
      for (int w = 0; w < options_.windows; ++w) {
        if (ranks_[at(r)].left[at(w)] > 0) {
          return invalid(
              fmt::format("simulation: rank {} waits for ever in window {}; verify() the "
                          "plan first",
                          r, w));
        }
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  struct Rank {
    StepGraph graph;
    double start = 0;
    std::vector<int> needs;  ///< by window and step
    std::vector<int> left;   ///< steps not done, by window
    std::vector<int> fifo;   ///< by step
    std::vector<int> place;  ///< by step: how many of its kind came before on its FIFO
  };
  struct Instance {
    int rank = 0;
    int step = 0;
    int window = 0;
  };
  struct Fifo {
    int from = 0;
    int to = 0;
    bool carries_chunks = true;
    const RankRoute* route = nullptr;
    const ProtocolCost* protocol = nullptr;
    std::vector<Load> wire;     ///< what a byte of payload loads
    int sends = 0;              ///< of a window
    int receives = 0;           ///< of a window
    std::deque<int> queue;      ///< messages sent and not yet begun, see message()
    int under_way = -1;         ///< the message that the FIFO is busy with
    std::vector<char> arrived;  ///< by message
    std::vector<int> taker;     ///< by message: the step that waits for it, or -1
    int flow = -1;
    double left = 0;  ///< bytes of the message under way
    double since = 0;
    double rate = 0;  ///< bytes per ns
    std::uint32_t version = 0;
  };
  struct Event {
    enum class Kind : std::uint8_t { kStart, kStepDone, kLatencyOver, kArrived };
    double time = 0;
    std::uint64_t order = 0;
    Kind kind = Kind::kStart;
    int rank = 0;  ///< or FIFO
    int step = 0;
    int window = 0;
    std::uint32_t version = 0;
    bool operator>(const Event& other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };

  static std::vector<double> in_gbps(std::vector<double> capacity, double unit) {
    for (double& c : capacity) c *= unit;
    return capacity;
  }

  /// The paths that the plan gives its channels.
  Status read_paths() {
    std::map<std::string, int> nodes;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      nodes[graph_.nodes[i].id] = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < plan_.routes.size(); ++i) {
      const Route& route = plan_.routes[i];
      std::vector<int> path;
      for (const std::string& id : route.path) {
        const auto found = nodes.find(id);
        if (found == nodes.end()) {
          return invalid(
              fmt::format("simulation: the plan's routes[{}] passes {}, which the graph "
                          "does not have",
                          i, id));
        }
        path.push_back(found->second);
      }
      std::optional<RankRoute> along = routes_.along(path);
      if (!along || path.front() != graph_.rank_nodes[at(route.from)] ||
          path.back() != graph_.rank_nodes[at(route.to)]) {
        return invalid(
            fmt::format("simulation: the plan's routes[{}] is no path of the graph from "
                        "rank {} to rank {}",
                        i, route.from, route.to));
      }
      paths_[{route.from, route.to, route.channel}] = std::move(*along);
    }
    return Status();
  }

  Status join_fifo(int rank, const Step& step, int& index) {
    const bool sends = step.kind == StepKind::kSend || step.kind == StepKind::kSignal;
    const bool chunks = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
    const int from = sends ? rank : step.peer;
    const int to = sends ? step.peer : rank;
    const auto [it, added] =
        fifo_of_.try_emplace({from, to, step.channel, chunks}, static_cast<int>(fifos_.size()));
    index = it->second;
    if (!added) return Status();
    Fifo fifo;
    fifo.from = from;
    fifo.to = to;
    fifo.carries_chunks = chunks;
    const auto given = paths_.find({from, to, step.channel});
    fifo.route = given == paths_.end() ? routes_.find(from, to) : &given->second;
    if (fifo.route == nullptr) {
      return Status(
          Cause::kUnsupported,
          fmt::format("simulation: the plan sends from rank {} to rank {}, but the graph has "
                      "no way between them that avoids other ranks",
                      from, to));
    }
    fifo.protocol = &model_.protocol_for(chunks ? bytes_ : 0, fifo.route->rate * unit_);
    for (const Load& l : fifo.route->loads) {
      fifo.wire.push_back({l.resource, l.load / fifo.protocol->efficiency});
    }
    fifos_.push_back(std::move(fifo));
    return Status();
  }

  void post(double time, Event::Kind kind, int rank, std::uint32_t version, int step = 0,
            int window = 0) {
    events_.push({time, next_order_++, kind, rank, step, window, version});
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::kStart: {
        const auto count = static_cast<int>(plan_.steps[at(event.rank)].size());
        for (int s = 0; s < count; ++s) {
          if (ranks_[at(event.rank)].needs[at(s)] == 0) ready_.push_back({event.rank, s, 0});
        }
        return;
      }
      case Event::Kind::kStepDone:
        return done({event.rank, event.step, event.window});
      case Event::Kind::kLatencyOver:
        return begin_transfer(event.rank);
      case Event::Kind::kArrived:
        if (fifos_[at(event.rank)].version == event.version) arrive(event.rank);
        return;
    }
  }

  /// Everything that can go on without time passing.
  void work() {
    while (!ready_.empty()) {
      const Instance instance = ready_.front();
      ready_.pop_front();
      perform(instance);
    }
  }

  void perform(const Instance& i) {
    const Step& step = plan_.steps[at(i.rank)][at(i.step)];
    const int fifo = ranks_[at(i.rank)].fifo[at(i.step)];
    switch (step.kind) {
      case StepKind::kSend:
      case StepKind::kSignal:
        fifos_[at(fifo)].queue.push_back(message(i));
        if (fifos_[at(fifo)].under_way < 0) begin_message(fifo);
        return done(i);
      case StepKind::kRecv:
      case StepKind::kWait:
        if (fifos_[at(fifo)].arrived[at(message(i))] != 0) return done(i);
        fifos_[at(fifo)].taker[at(message(i))] = i.step;
        return;
      case StepKind::kReduce:
        return compute(i, model_.reduce_ns_per_byte * static_cast<double>(step.source.size() - 1));
      case StepKind::kCopy:
        return compute(i, model_.copy_ns_per_byte);
    }
  }
  /// A receive takes the message of its own window and place, as windows use slots of their own:
  /// the next window may overtake a later message of this one.
  [[nodiscard]] int message(const Instance& i) const {
    const Rank& rank = ranks_[at(i.rank)];
    const Fifo& fifo = fifos_[at(rank.fifo[at(i.step)])];
    return i.window * std::max(fifo.sends, fifo.receives) + rank.place[at(i.step)];
  }
  void compute(const Instance& i, double ns_per_byte) {
    const double ns = ns_per_byte * bytes_;
    if (ns <= 0) return done(i);
    post(now_ + ns, Event::Kind::kStepDone, i.rank, 0, i.step, i.window);
  }

  void satisfy(int rank, int step, int window) {
    const std::size_t count = plan_.steps[at(rank)].size();
    if (--ranks_[at(rank)].needs[at(window) * count + at(step)] == 0) {
      ready_.push_back({rank, step, window});
    }
  }
  void done(const Instance& i) {
    Rank& rank = ranks_[at(i.rank)];
    for (int next : rank.graph.after[at(i.step)]) satisfy(i.rank, next, i.window);
    if (i.window + 1 < options_.windows) satisfy(i.rank, i.step, i.window + 1);
    if (--rank.left[at(i.window)] > 0) return;
    result_.finish_ns[at(i.rank)] = std::max(result_.finish_ns[at(i.rank)], now_);
    if (i.window + options_.slots >= options_.windows) return;
    for (std::size_t s = 0; s < plan_.steps[at(i.rank)].size(); ++s) {
      satisfy(i.rank, static_cast<int>(s), i.window + options_.slots);
    }
  }

  void begin_message(int index) {
    Fifo& fifo = fifos_[at(index)];
    fifo.under_way = fifo.queue.front();
    fifo.queue.pop_front();
    const double latency = fifo.protocol->alpha_ns + fifo.route->latency_ns.value_or(0);
    post(now_ + latency, Event::Kind::kLatencyOver, index, 0);
  }
  void begin_transfer(int index) {
    Fifo& fifo = fifos_[at(index)];
    if (!fifo.carries_chunks || bytes_ <= 0) return arrive(index);
    fifo.left = bytes_;
    fifo.since = now_;
    fifo.rate = 0;
    fifo.flow = share_.add(fifo.wire);
    if (at(fifo.flow) >= fifo_of_flow_.size()) fifo_of_flow_.resize(at(fifo.flow) + 1);
    fifo_of_flow_[at(fifo.flow)] = index;
    changed_ = true;
  }
  void arrive(int index) {
    Fifo& fifo = fifos_[at(index)];
    if (fifo.flow >= 0) {
      share_.remove(fifo.flow);
      fifo.flow = -1;
      changed_ = true;
      for (const Load& l : fifo.route->loads) {
        result_.resource_bytes[at(l.resource)] += l.load * bytes_;
      }
    }
    ++fifo.version;
    ++result_.messages;
    const int message = std::exchange(fifo.under_way, -1);
    fifo.arrived[at(message)] = 1;
    if (!fifo.queue.empty()) begin_message(index);
    const int step = fifo.taker[at(message)];
    if (step < 0) return;
    done({fifo.to, step, message / std::max(fifo.sends, fifo.receives)});
  }

  /// After flows came or went: new rates, new times of arrival.
  void reschedule() {
    changed_ = false;
    for (int flow : share_.update()) {
      Fifo& fifo = fifos_[at(fifo_of_flow_[at(flow)])];
      fifo.left = std::max(0.0, fifo.left - fifo.rate * (now_ - fifo.since));
      fifo.since = now_;
      fifo.rate = share_.rate(flow);
      ++fifo.version;
      post(now_ + fifo.left / fifo.rate, Event::Kind::kArrived, fifo_of_flow_[at(flow)],
           fifo.version);
    }
  }

  void finish() {
    const auto [low, high] =
        std::minmax_element(result_.finish_ns.begin(), result_.finish_ns.end());
    result_.time_ns = *high;
    result_.spread_ns = *high - *low;
    double longest = 0;
    for (std::size_t r = 0; r < result_.resource_bytes.size(); ++r) {
      const double busy = result_.resource_bytes[r] / (routes_.capacities()[r] * unit_);
      if (busy > longest * (1 + 1e-12)) {
        longest = busy;
        result_.bottleneck = static_cast<int>(r);
      }
    }
    if (result_.time_ns > 0) result_.bottleneck_share = longest / result_.time_ns;
  }

  const Plan& plan_;
  const Graph& graph_;
  const Routes& routes_;
  const CostModel& model_;
  const SimulationOptions& options_;
  double unit_;
  double bytes_;  ///< of a chunk in one window
  FairShare share_;
  double now_ = 0;
  bool changed_ = false;
  std::uint64_t next_order_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Fifo> fifos_;
  std::map<std::tuple<int, int, int, bool>, int> fifo_of_;
  std::map<std::tuple<int, int, int>, RankRoute> paths_;  ///< by sender, receiver and channel
  std::vector<int> fifo_of_flow_;
  std::deque<Instance> ready_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  SimulationResult result_;
};

Status check_options(const Plan& plan, const Graph& graph, const SimulationOptions& options) {
  if (plan.ranks != graph.ranks()) {
    return invalid(
        fmt::format("simulation: the plan has {} ranks, the graph {}", plan.ranks, graph.ranks()));
  }
  if (!std::isfinite(options.bytes) || options.bytes < 0) {
    return invalid(fmt::format("simulation: a message of {} bytes", options.bytes));
  }
  if (options.windows < 1 || options.windows > kMaxWindows || options.slots < 1) {
    return invalid(
        fmt::format("simulation: {} windows in {} slots; 1 to {} windows and at least 1 "
                    "slot are possible",
                    options.windows, options.slots, kMaxWindows));
  }
  if (!options.start_ns.empty() && options.start_ns.size() != at(plan.ranks)) {
    return invalid(fmt::format("simulation: {} starting times for {} ranks",
                               options.start_ns.size(), plan.ranks));
  }
  for (std::size_t r = 0; r < options.start_ns.size(); ++r) {
    if (!std::isfinite(options.start_ns[r]) || options.start_ns[r] < 0) {
      return invalid(fmt::format("simulation: rank {} starts at {} ns", r, options.start_ns[r]));
    }
  }
  std::int64_t instances = 0;
  for (const auto& steps : plan.steps) {
    instances += static_cast<std::int64_t>(steps.size()) * options.windows;
  }
  if (instances > kMaxInstances) {
    return invalid(
        fmt::format("simulation: {} steps in all windows, {} are allowed; use fewer "
                    "windows",
                    instances, kMaxInstances));
  }
  return Status();
}

}  // namespace

double chunk_bytes(const Plan& plan, double bytes) {
  int most = 1;
  for (int r = 0; r < plan.ranks; ++r) {
    most = std::max({most, input_chunks(plan, r), output_chunks(plan, r)});
  }
  return bytes / most;
}

Result<SimulationResult> simulate(const Plan& plan, const Graph& graph, const Routes& routes,
                                  const CostModel& model, const SimulationOptions& options) {
  if (Status s = check(model); !s.ok()) return s;
  if (Status s = check_options(plan, graph, options); !s.ok()) return s;
  if (Status s = check_structure(plan); !s.ok()) return s;
  Simulation simulation(plan, graph, routes, model, options);
  if (Status s = simulation.prepare(); !s.ok()) return s;
  return simulation.run();
}

}  // namespace topocoll
