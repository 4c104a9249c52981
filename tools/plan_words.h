// What the subcommands of "topocoll plan" read and say alike.
//
// Thread rule: free functions on values. Failure rule: a Status whose text is one line for the
// user.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "topocoll/planning.h"
#include "topocoll/status.h"
#include "topocoll/types.h"

namespace topocoll::tools {

Result<CollectiveKind> kind_of(const std::string& collective);

/// "64k" is 65536; none: powers of four from 1 KiB to 1 GiB.
Result<std::vector<std::uint64_t>> parse_sizes(const std::vector<std::string>& texts);
std::string size_text(std::uint64_t bytes);

nlohmann::ordered_json prediction_json(const PlanPrediction& p);
/// The table of predictions: its header, and a line.
std::string prediction_header();
std::string prediction_line(const PlanPrediction& p);

}  // namespace topocoll::tools
