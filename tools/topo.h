// The subcommands of "topocoll topo".
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "probe_net.h"
#include "topo_input.h"
#include "topocoll/findings.h"
#include "topocoll/status.h"

namespace topocoll::tools {

/// The exit status of commands that look for what is wrong or different, and found some.
inline constexpr int kFoundSomething = 3;
/// Whether one of them is more than worth knowing.
bool any_problem(const std::vector<Finding>& findings);

struct TopoRequest {
  TopoInput input;
  std::vector<std::string> files;  ///< of diff
  std::string format;              ///< of export and dump; empty: by the ending of `output`
  std::string output;              ///< of export, dump, record and probe
  bool json = false;
  bool probe = false;     ///< of show
  bool no_cache = false;  ///< of probe
  int budget_ms = 2000;   ///< of probe, as the next two
  int gpu_budget_ms = 10000;
  bool no_gpus = false;
  ProbeNetRequest probe_net;
  int exit_status = 0;  ///< 3: check or diff found something
};

/// Adds the subcommands. `request` and `action` must outlive the parsing and the action.
void add_topo(CLI::App& app, TopoRequest& request, std::function<Result<std::string>()>& action);

}  // namespace topocoll::tools
