#include "communicator/given_plans.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/hash.h"
#include "base/regular_file.h"
#include "topocoll/planning.h"
#include "topocoll/probe.h"
#include "topocoll/topology.h"

namespace topocoll {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

/// "((0+1)+2)" for three ranks.
std::string rank_order(int ranks) {
  std::string order = "0";
  for (int r = 1; r < ranks; ++r) order = fmt::format("({}+{})", order, r);
  return order;
}

Status check_reproducible(const Plan& plan) {
  if (!reduces(plan.kind)) return {};
  const std::string wanted = rank_order(plan.ranks);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    auto orders = evaluation_orders(plan, rank);
    if (!orders.ok()) return orders.status();
    for (const std::string& order : *orders) {
      if (order == wanted) continue;
      return Status(Cause::kInvalidArgument,
                    fmt::format("it reduces {} where TOPOCOLL_REPRODUCIBLE asks for the order of ranks: unset "
                                "one of the two",
                                order));
    }
    // verify() has shown that an all_reduce is the same everywhere.
    if (plan.kind == CollectiveKind::kAllReduce) break;
  }
  return {};
}

/// A plan that would never run is an error: it would be missed by nobody.
Status check_served(const Plan& plan, AllReduceAlgorithm forced) {
  switch (plan.kind) {
    case CollectiveKind::kAllReduce:
      if (forced == AllReduceAlgorithm::kAuto) return {};
      return Status(Cause::kInvalidArgument,
                    fmt::format("it is a plan for all_reduce, and TOPOCOLL_ALL_REDUCE_ALGORITHM={} asks for another: "
                                "unset one of the two",
                                name(forced)));
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll: return {};
    default:
      return Status(Cause::kInvalidArgument,
                    fmt::format("{} always runs its direct plan: leave out this file; plans are run for all_reduce, reduce, "
                                "broadcast, all_gather, reduce_scatter and all_to_all",
                                name(plan.kind)));
  }
}

/// A plan for this machine may have been made with what a probe has found of it, such as NVLinks,
/// or without.
Status check_made_here(const Plan& plan) {
  if (plan.topology_fingerprint.empty()) return {};
  const auto known = known_topology();
  // Where the machine cannot be read there is nothing to compare with.
  const Status refused = known.ok() ? check_made_for(plan, *known) : Status();
  if (refused.ok()) return {};
  const auto seen = discover_topology();
  return seen.ok() && check_made_for(plan, *seen).ok() ? Status() : refused;
}

}  // namespace

Result<GivenPlans> read_given_plans(const std::string& files, int ranks, bool reproducible, AllReduceAlgorithm forced) {
  GivenPlans given;
  given.digest = "none";
  std::uint64_t hash = kFnvOffset;
  for (std::size_t at = 0; at < files.size();) {
    const std::size_t end = std::min(files.find(',', at), files.size());
    const std::string path = files.substr(at, end - at);
    at = end + 1;
    const auto refuse = [&path](const Status& s) { return s.annotated("TOPOCOLL_PLAN: " + path); };
    if (path.empty()) continue;
    auto text = read_regular_file(path, kMaxFileBytes);
    if (!text.ok()) return text.status().annotated("TOPOCOLL_PLAN");
    auto plan = plan_from_json(*text);
    if (!plan.ok()) return refuse(plan.status());
    if (Status s = verify(*plan); !s.ok()) return refuse(s);
    if (plan->ranks != ranks) {
      given.others.push_back(fmt::format("{} ({} ranks)", path, plan->ranks));
      continue;
    }
    if (Status s = check_served(*plan, forced); !s.ok()) return refuse(s);
    if (Status s = check_made_here(*plan); !s.ok()) return refuse(s);
    if (reproducible) {
      if (Status s = check_reproducible(*plan); !s.ok()) return refuse(s);
    }
    hash = fnv1a(to_json(*plan), hash);
    given.plans.push_back(std::move(*plan));
  }
  if (!given.plans.empty()) given.digest = fmt::format("{:016x}", hash);
  return given;
}

}  // namespace topocoll
