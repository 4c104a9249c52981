// Plans of known machines, run by processes over shared memory: bit for bit what the plan's own tree gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/evaluate.h"
#include "support/ranks.h"
#include "support/sanitized.h"
#include "topocoll/planning.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

using Kind = CollectiveKind;
using testing::ForkedRanks;
using testing::Report;

constexpr int kMostRanks = testing::kSanitized ? 8 : 16;
constexpr std::size_t kCount = 601;  ///< elements per block; no multiple of anything
constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter,
                            Kind::kAllToAll};

std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TOPOCOLL_FIXTURES)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

float input(int rank, std::size_t i) {
  return 1.0f / static_cast<float>((i * 2654435761u + static_cast<std::size_t>(rank) * 40503u) % 9973 + 1);
}

/// Whether out[i] is what some chunk's tree gives; where chunks end is the executor's business.
bool matches(const Plan& plan, int rank, const std::vector<float>& out, std::size_t in_offset) {
  std::vector<std::string> orders = evaluation_orders(plan, rank).value();
  std::sort(orders.begin(), orders.end());
  orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool found = std::any_of(orders.begin(), orders.end(), [&](const std::string& order) {
      std::size_t at = 0;
      return out[i] == testing::evaluate<float>(order, at, [&](int r) { return input(r, in_offset + i); });
    });
    if (!found) return false;
  }
  return true;
}

/// Runs one collective under its plan and compares; empty, or what is wrong.
std::string run(Communicator& comm, const Plan& plan) {
  const int n = comm.size();
  const int me = comm.rank();
  const bool exchange = plan.kind == Kind::kAllToAll;
  const bool blocks_in = plan.kind == Kind::kReduceScatter || exchange;
  const bool blocks_out = plan.kind == Kind::kAllGather || exchange;
  std::vector<float> in(kCount * static_cast<std::size_t>(blocks_in ? n : 1));
  std::vector<float> out(kCount * static_cast<std::size_t>(blocks_out ? n : 1));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = input(me, i);
  Operation op;
  op.kind = plan.kind;
  op.type = DataType::kF32;
  op.root = plan.root;
  op.count = kCount;
  op.in = in.data();
  op.out = out.data();
  if (comm.choice(op).algorithm != plan.algorithm) return "another plan is used: " + comm.choice(op).algorithm;
  if (Status s = comm.run(op); !s.ok()) return s.to_string();
  const std::string wrong(name(plan.kind));
  switch (plan.kind) {
    case Kind::kAllGather:
      for (int r = 0; r < n; ++r) {
        for (std::size_t i = 0; i < kCount; ++i) {
          if (out[static_cast<std::size_t>(r) * kCount + i] != input(r, i)) return wrong;
        }
      }
      return "";
    case Kind::kAllToAll:
      for (int r = 0; r < n; ++r) {
        for (std::size_t i = 0; i < kCount; ++i) {
          if (out[static_cast<std::size_t>(r) * kCount + i] != input(r, static_cast<std::size_t>(me) * kCount + i)) {
            return wrong;
          }
        }
      }
      return "";
    case Kind::kBroadcast:
      for (std::size_t i = 0; i < kCount; ++i) {
        if (out[i] != input(plan.root, i)) return wrong;
      }
      return "";
    case Kind::kReduceScatter:
      return matches(plan, me, out, static_cast<std::size_t>(me) * kCount) ? "" : wrong;
    default:
      if (plan.kind == Kind::kReduce && me != plan.root) return "";
      return matches(plan, me, out, 0) ? "" : wrong;
  }
}

class PlannedMachine : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override {
    unsetenv("TOPOCOLL_PLAN");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("topocoll_plans." + std::to_string(getpid()));
};
INSTANTIATE_TEST_SUITE_P(Known, PlannedMachine, ::testing::ValuesIn(fixtures()),
                         [](const auto& test) { return test.param; });

TEST_P(PlannedMachine, ItsPlansRunOnProcesses) {
  TOPOCOLL_FORKS_RANKS();
  std::ostringstream text;
  text << std::ifstream(std::filesystem::path(TOPOCOLL_FIXTURES) / (GetParam() + ".json")).rdbuf();
  const auto topology = import_topology(text.str(), GetParam());
  ASSERT_TRUE(topology.ok()) << topology.status().to_string();
  const int ranks = static_cast<int>(topology->of_kind(NodeKind::kGpu).size());
  if (ranks > kMostRanks) GTEST_SKIP() << ranks << " ranks are too many processes for a test";
  std::filesystem::create_directory(folder_);
  std::vector<Plan> plans;
  std::string files;
  for (const Kind kind : kKinds) {
    auto report = plan_collective(*topology, {kind, ranks / 2, 8});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    report->plan.topology_fingerprint.clear();  // it is to run here, on CPUs
    const auto file = folder_ / (std::string(name(kind)) + ".json");
    std::ofstream(file) << to_json(report->plan);
    files += (files.empty() ? "" : ",") + file.string();
    plans.push_back(std::move(report->plan));
  }
  ASSERT_EQ(setenv("TOPOCOLL_PLAN", files.c_str(), 1), 0);
  ForkedRanks processes(ranks, [&](Communicator& comm, Report& report) {
    for (const Plan& plan : plans) {
      const std::string wrong = run(comm, plan);
      if (!wrong.empty()) return report.note(Status(Cause::kInternal, wrong));
      ++report.operations;
    }
  });
  processes.join_all();
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(processes.report(r).operations, plans.size()) << "rank " << r << ": " << processes.report(r).text;
  }
}

}  // namespace
}  // namespace topocoll
