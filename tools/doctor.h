// "topocoll doctor": is this machine fit for collectives, and if not, what is to blame.
//
// Thread rule: one thread, before the process has any other. Failure rule: what is wrong with the
// machine is a finding; a Status says that the doctor itself could not work.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "topocoll/status.h"

namespace topocoll::tools {

struct DoctorRequest {
  int ranks = 0;  ///< 0: one for each CPU, from 2 to 8
  bool json = false;
  bool no_cache = false;
  bool no_gpus = false;
  int exit_status = 0;  ///< 3: a warning or an error was found
};

/// Adds the subcommand. `request` and `action` must outlive the parsing and the action.
void add_doctor(CLI::App& app, DoctorRequest& request,
                std::function<Result<std::string>()>& action);

}  // namespace topocoll::tools
