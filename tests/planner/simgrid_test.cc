// The simulator beside SimGrid (Casanova et al., 2014), another flow-level
// simulator: the same messages over the same links must take the same time.
// What a step waits for is the planner's; when messages move, and how they
// share links, is SimGrid's.
#include <gtest/gtest.h>

#ifdef TOPOCOLL_SIMGRID

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <simgrid/s4u.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "planner/emit.h"
#include "planner/make_graphs.h"
#include "planner/make_topology.h"
#include "planner/ring_plans.h"
#include "planner/rings.h"
#include "planner/simulator.h"
#include "planner/step_graph.h"
#include "planner/trees.h"
#include "planner/uniform_cost.h"
#include "topocoll/planning.h"

namespace sg = simgrid::s4u;

namespace topocoll::testing {
namespace {

constexpr double kAlphaNs = 2000;
constexpr double kBytes = 1 << 28;

/// One run of a plan, in a process of its own: SimGrid has one engine for each.
class Peer {
 public:
  Peer(const Plan &plan, const Graph &graph) : plan_(plan), routes_(graph) {
    const double unit = graph.unit.to_double();
    zone_ = sg::create_full_zone("machine");
    for (int r = 0; r < routes_.resources(); ++r) {
      links_.push_back(
          zone_
              ->create_link("link" + std::to_string(r), routes_.capacities()[index(r)] * unit * 1e9)
              ->set_latency(0)
              ->seal());
    }
    for (const Route &route : plan.routes) {
      std::vector<int> nodes;
      for (const std::string &id : route.path) {
        for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
          if (graph.nodes[n].id == id) nodes.push_back(static_cast<int>(n));
        }
      }
      paths_[{route.from, route.to, route.channel}] = *routes_.along(nodes);
    }
    for (int r = 0; r < plan.ranks; ++r) {
      graphs_.push_back(make_step_graph(plan, r));
      for (const Step &step : plan.steps[index(r)]) {
        if (step.kind == StepKind::kSend) ++fifo(r, step.peer, step.channel).messages;
      }
    }
    zone_->seal();
  }

  double seconds() {
    mutex_ = sg::Mutex::create();
    for (auto &[key, f] : fifos_) {
      f.filled = sg::ConditionVariable::create();
      sg::Actor::create("sender", f.from, [this, &f = f] { send_all(f); });
    }
    sg::Actor::create("start", fifos_.begin()->second.from, [this] {
      const std::unique_lock<sg::Mutex> lock(*mutex_);
      for (int r = 0; r < plan_.ranks; ++r) {
        const std::vector<int> needs = graphs_[index(r)].needs;
        for (std::size_t s = 0; s < needs.size(); ++s) {
          if (needs[s] == 0) ready_.push_back({r, static_cast<int>(s)});
        }
      }
      work();
    });
    sg::Engine::get_instance()->run();
    return sg::Engine::get_clock();
  }

 private:
  struct Fifo {
    sg::Host *from = nullptr;
    sg::Host *to = nullptr;
    int receiver = 0;  ///< rank
    int messages = 0;  ///< in all
    std::deque<int> waiting;
    sg::ConditionVariablePtr filled;
    int arrived = 0;
    std::deque<int> receives;  ///< steps of the receiver that wait
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Fifo &fifo(int from, int to, int channel) {
    const auto [it, added] = fifos_.try_emplace({from, to, channel});
    if (!added) return it->second;
    it->second.receiver = to;
    const std::string name = std::to_string(fifos_.size());
    it->second.from = zone_->create_host("from" + name, 1e9);
    it->second.to = zone_->create_host("to" + name, 1e9);
    const auto given = paths_.find({from, to, channel});
    const RankRoute &route = given == paths_.end() ? *routes_.find(from, to) : given->second;
    std::vector<sg::LinkInRoute> links;
    for (const Load &l : route.loads) links.emplace_back(links_[index(l.resource)]);
    zone_->add_route(it->second.from->get_netpoint(), it->second.to->get_netpoint(), nullptr,
                     nullptr, links, false);
    return it->second;
  }

  void send_all(Fifo &f) {
    const auto bytes = static_cast<std::uint64_t>(std::llround(chunk_bytes(plan_, kBytes)));
    std::unique_lock<sg::Mutex> lock(*mutex_);
    for (int sent = 0; sent < f.messages; ++sent) {
      while (f.waiting.empty()) f.filled->wait(lock);
      f.waiting.pop_front();
      lock.unlock();
      sg::this_actor::sleep_for(kAlphaNs * 1e-9);
      sg::Comm::sendto(f.from, f.to, bytes);
      lock.lock();
      ++f.arrived;
      take(f);
      work();
    }
  }

  void take(Fifo &f) {
    for (; f.arrived > 0 && !f.receives.empty(); --f.arrived) {
      const int step = f.receives.front();
      f.receives.pop_front();
      done(f.receiver, step);
    }
  }
  void done(int rank, int step) {
    StepGraph &graph = graphs_[index(rank)];
    for (const int next : graph.after[index(step)]) {
      if (--graph.needs[index(next)] == 0) ready_.push_back({rank, next});
    }
  }
  /// Everything that can go on without time passing.
  void work() {
    while (!ready_.empty()) {
      const auto [rank, s] = ready_.front();
      ready_.pop_front();
      const Step &step = plan_.steps[index(rank)][index(s)];
      if (step.kind == StepKind::kSend) {
        Fifo &f = fifo(rank, step.peer, step.channel);
        f.waiting.push_back(s);
        f.filled->notify_all();
        done(rank, s);
      } else if (step.kind == StepKind::kRecv) {
        Fifo &f = fifo(step.peer, rank, step.channel);
        f.receives.push_back(s);
        take(f);
      } else {
        done(rank, s);
      }
    }
  }

  const Plan &plan_;
  Routes routes_;
  sg::NetZone *zone_ = nullptr;
  std::vector<sg::Link *> links_;
  std::map<std::tuple<int, int, int>, RankRoute> paths_;
  std::map<std::tuple<int, int, int>, Fifo> fifos_;
  std::vector<StepGraph> graphs_;
  std::deque<std::pair<int, int>> ready_;
  sg::MutexPtr mutex_;
};

/// What SimGrid says; NaN if it failed.
double simgrid_seconds(const Plan &plan, const Graph &graph) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nan("");
  std::fflush(nullptr);  // else the child writes it too
  const pid_t child = ::fork();
  if (child == 0) {
    char name[] = "peer";
    char quiet[] = "--log=root.thresh:critical";
    char *argv[] = {name, quiet, nullptr};
    int argc = 2;
    sg::Engine engine(&argc, argv);
    // Flows on fluid links: no TCP windows, no overhead of packets.
    sg::Engine::set_config("network/model:CM02");
    sg::Engine::set_config("network/TCP-gamma:0");
    sg::Engine::set_config("network/crosstraffic:0");
    const double seconds = Peer(plan, graph).seconds();
    const bool told = ::write(ends[1], &seconds, sizeof seconds) == sizeof seconds;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  double seconds = std::nan("");
  if (::read(ends[0], &seconds, sizeof seconds) != sizeof seconds) seconds = std::nan("");
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return seconds;
}

void expect_agreement(const Plan &plan, const Graph &graph, const std::string &what) {
  const auto ours = simulate(plan, graph, Routes(graph), uniform_cost(kAlphaNs), {kBytes});
  ASSERT_TRUE(ours.ok()) << what << ": " << ours.status().to_string();
  const double theirs = simgrid_seconds(plan, graph);
  EXPECT_NEAR(ours->time_ns * 1e-9, theirs, 1e-3 * theirs) << what;
}

class SimGrid : public ::testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(Known, SimGrid,
                         ::testing::Values("dgx1v_8xV100", "pcie_8gpu_4plx_2socket", "dgxa100_x1"),
                         [](const auto &test) { return std::string(test.param); });

TEST_P(SimGrid, AgreesOnRingsTreesAndDirectPlans) {
  const Graph graph = load_fixture(GetParam()).graph;
  const Routes routes(graph);
  const auto ring = best_ring(routes);
  ASSERT_TRUE(ring.ok());
  for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
    expect_agreement(*make_ring_plan(kind, {ring->order}, 0), graph,
                     "ring " + std::string(name(kind)));
  }
  const auto packing = pack_allgather(graph);
  ASSERT_TRUE(packing.ok());
  expect_agreement(plan_from_packing(CollectiveKind::kAllGather, graph, *packing)->plan, graph,
                   "trees");
  const auto exchange = plan_collective(topology_of(graph), {CollectiveKind::kAllToAll, 0, 4});
  ASSERT_TRUE(exchange.ok());
  expect_agreement(exchange->plan, graph, exchange->algorithm);
}

}  // namespace
}  // namespace topocoll::testing

#else

TEST(SimGrid, AgreesOnRingsTreesAndDirectPlans) {
  GTEST_SKIP() << "SimGrid was not found when this was built (Debian: libsimgrid-dev)";
}

#endif
