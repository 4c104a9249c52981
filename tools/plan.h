// The subcommands of "topocoll plan".
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topo_input.h"
#include "topocoll/status.h"

namespace topocoll::tools {

struct PlanRequest {
  TopoInput input;                 ///< of make, explain, simulate and compare; check: --topology
  std::vector<std::string> without;  ///< of the same: nodes to leave out
  std::string file;                ///< show, check, simulate: a plan
  std::string collective = "all_reduce";
  bool collective_given =
      false;  ///< simulate: on the command line, so that the plan has to be of it
  std::string algorithm;           ///< show; empty: two_shot for all_reduce, else one_shot
  int ranks = 2;
  int root = 0;
  int channels = 16;
  std::vector<std::string> sizes;  ///< of simulate
  std::string output;              ///< make: where the plan itself goes; compare: a folder for the plans
  std::string topology_output;     ///< make: where the machine of all nodes of a cluster goes
  std::string svg;                 ///< explain: where pictures go
  std::string html;
  std::string dot;
  bool any_machine = false;        ///< make, compare: plans name no machine
  std::optional<std::int64_t> nodes;  ///< make, explain, simulate: of a cluster
  std::string fabric;              ///< likewise: the file that describes its network
  bool json = false;
};

/// Whether one of the outputs is standard output, which then has that alone.
bool prints_file(const PlanRequest& request);

/// Adds the subcommands. `request` and `action` must outlive the parsing and the action.
void add_plan(CLI::App& app, PlanRequest& request, std::function<Result<std::string>()>& action);

}  // namespace topocoll::tools
