// "topocoll plan" on clusters: a node, how many of it there are, and the fabric between them.
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "plan.h"
#include "topocoll/status.h"

namespace topocoll::tools {

/// Adds --nodes and --fabric.
void add_cluster_options(CLI::App* command, PlanRequest& request);
/// Whether either was given.
bool is_cluster(const PlanRequest& request);
/// Whether the arguments go together, if either was given.
Status check_cluster_usage(const PlanRequest& request);

Result<std::string> make_cluster_plan(const PlanRequest& request, bool in_words);
Result<std::string> simulate_cluster_plan(const PlanRequest& request);

}  // namespace topocoll::tools
