// ResultsFile: sections of a Markdown file that programs keep up to date, between markers such as
// <!-- kill_bench:begin --> and <!-- kill_bench:end -->.
//
// Thread rule: one thread. Failure rule: a Status that names the file.
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "topocoll/status.h"

namespace topocoll::perf {

/// Replaces the section `name` of the file, or appends it. `body` ends with a line break.
inline Status replace_section(const std::string& path, const std::string& name,
                              const std::string& body) {
  std::stringstream text;
  if (std::ifstream in(path); in) text << in.rdbuf();
  std::string all = text.str();
  const std::string begin = "<!-- " + name + ":begin -->\n";
  const std::string end = "<!-- " + name + ":end -->\n";
  const std::size_t from = all.find(begin);
  const std::size_t to = from == std::string::npos ? from : all.find(end, from);
  if (to != std::string::npos) {
    all.replace(from, to + end.size() - from, begin + body + end);
  } else {
    all += (all.empty() ? "" : "\n") + begin + body + end;
  }
  std::ofstream out(path, std::ios::trunc);
  out << all;
  out.close();
  if (!out) return Status(Cause::kSystem, "cannot write " + path + ": " + std::strerror(errno));
  return {};
}

}  // namespace topocoll::perf
