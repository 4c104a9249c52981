// The subcommands of topocoll that have none of their own.
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user; nothing has
// been printed then, or only what is right.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/status.h"

namespace topocoll::tools {

/// Names the first word that should be a subcommand and is none; the parser would only miss one.
Status check_subcommands(CLI::App& app, int argc, const char* const* argv);

/// What is wrong with a command line, and where help is.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);
/// In the callback of a subcommand: ends the parsing where its arguments do not go together.
void require(const Status& status);
/// kInvalidArgument if several of these are "-", which is `what`, e.g. standard input.
Status once(std::initializer_list<std::string_view> names, std::string_view what);

/// Each returns what is to be printed. `errors` gets a line for each variable that is wrong.
std::string show_options(bool json, std::vector<std::string>& errors);
std::string show_version();

}  // namespace topocoll::tools
