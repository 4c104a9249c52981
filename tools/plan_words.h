// What the subcommands of "topocoll plan" read and say alike.
//
// Thread rule: free functions on values. Failure rule: a Status whose text is one line for the
// user.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "topocoll/planning.h"
#include "topocoll/status.h"
#include "topocoll/types.h"

namespace topocoll::tools {

/// What plan_collective() plans, and what has a direct plan.
inline constexpr std::array kDirectKinds = {
    CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll,  CollectiveKind::kBroadcast, CollectiveKind::kReduce,
    CollectiveKind::kGather,    CollectiveKind::kScatter,   CollectiveKind::kBarrier};
inline constexpr std::span<const CollectiveKind> kPlannedKinds(kDirectKinds.data(), 6);
/// A kind by its name. The error for a word that is none offers those that are `served`.
Result<CollectiveKind> kind_of(const std::string& collective,
                               std::span<const CollectiveKind> served);

/// "64k" and "64 KiB" are 65536; none: powers of four from 1 KiB to 1 GiB.
Result<std::vector<std::uint64_t>> parse_sizes(const std::vector<std::string>& texts);
/// "64 KiB" and "1537 KiB": every byte counts, as limits of plans do.
std::string exact_size_text(std::uint64_t bytes);
/// "171.4 (1200/7)", and "48" where the fraction says nothing more.
std::string bound_text(double gbps, const std::string& fraction);

nlohmann::ordered_json prediction_json(const PlanPrediction& p);
/// The table of predictions: its header, and a line.
std::string prediction_header();
std::string prediction_line(const PlanPrediction& p);

/// On stderr, where a plan is written that names its machine: which groups run it.
void say_bound_to_machine();

}  // namespace topocoll::tools
