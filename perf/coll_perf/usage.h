// What is wrong with a command line, in words.
//
// Thread rule: one thread. Failure rule: none.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace topocoll::perf {

/// CLI11's text, but for what was not expected: it has that in reverse.
inline std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  const std::vector<std::string> words = app.remaining(true);
  return fmt::format("The following argument{} not expected: {}",
                     words.size() == 1 ? " was" : "s were", fmt::join(words, " "));
}

}  // namespace topocoll::perf
