#include "commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "perf/coll_perf/usage.h"
#include "topocoll/options.h"
#include "topocoll/version.h"

namespace topocoll::tools {

Status check_subcommands(CLI::App& app, int argc, const char* const* argv) {
  CLI::App* at = &app;
  std::string line = app.get_name();
  for (int i = 1; i < argc; ++i) {
    const std::vector<CLI::App*> known = at->get_subcommands([](CLI::App*) { return true; });
    const std::string word = argv[i];
    if (known.empty() || word.starts_with('-')) return {};
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&word](CLI::App* a) { return a->get_name() == word; });
    if (found == known.end()) {
      std::string names;
      for (const CLI::App* a : known) names += (names.empty() ? "" : ", ") + a->get_name();
      return Status(Cause::kInvalidArgument,
                    fmt::format("'{}' is no subcommand of {}; there are: {}; see {} --help", word,
                                line, names, line));
    }
    at = *found;
    line += " " + word;
  }
  return {};
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string line = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    line += " " + at->get_name();
  }
  return fmt::format("{}; see {} --help", perf::usage_error(app, error), line);
}

void require(const Status& status) {
  if (!status.ok()) throw CLI::ValidationError(status.text());
}

Status once(std::initializer_list<std::string_view> names, std::string_view what) {
  if (std::count(names.begin(), names.end(), "-") < 2) return {};
  return Status(Cause::kInvalidArgument, fmt::format("- is {}: it can be given once", what));
}

std::string show_options(bool json, std::vector<std::string>& errors) {
  const OptionTable table = option_table();
  for (const Status& error : table.errors) errors.push_back(error.text());
  if (json) {
    auto array = nlohmann::ordered_json::array();
    for (const OptionInfo& o : table.rows) {
      array.push_back({{"name", o.name},
                       {"type", o.type},
                       {"value", o.value},
                       {"default", o.fallback},
                       {"origin", o.origin},
                       {"help", o.help}});
    }
    return array.dump(2) + "\n";
  }
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const OptionInfo& o : table.rows) {
    name_width = std::max(name_width, o.name.size());
    value_width = std::max(value_width, o.value.size());
  }
  std::string text;
  for (const OptionInfo& o : table.rows) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n{:4}{}\n{:4}{}; default {}\n", o.name, name_width,
                        o.value, value_width, o.origin, "", o.help, "", o.type,
                        o.fallback.empty() ? "(none)" : o.fallback);
  }
  return text;
}

std::string show_version() {
  return fmt::format("topocoll {}\nbuild {}\nwire protocol {}\n", version(), build_id(),
                     wire_version());
}

}  // namespace topocoll::tools
