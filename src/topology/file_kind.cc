#include "topology/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace topocoll {
namespace {

struct Known {
  FileKind kind;
  std::array<std::string_view, 2> members;  ///< all of which it has; an empty name is none
  std::string_view what;
  std::string_view name;  ///< in "and no ..."
  std::string_view goes;  ///< where
};

constexpr std::array<Known, 7> kKnown = {
    {{FileKind::kFabric,
      {"topocoll_fabric", ""},
      "a fabric",
      "fabric",
      "give it with topocoll plan make MACHINE --nodes N --fabric"},
     {FileKind::kPlan,
      {"topocoll_plan", ""},
      "a plan",
      "plan",
      "topocoll plan show and plan check read it, and TOPOCOLL_PLAN names it to ranks"},
     {FileKind::kPlanningReport,
      {"topocoll_planning", ""},
      "a report of plan make",
      "report",
      "topocoll plan make --output writes the plan"},
     {FileKind::kClusterReport,
      {"topocoll_cluster_plan", ""},
      "a report of plan make",
      "report",
      "topocoll plan make --output writes the plan"},
     {FileKind::kDoctorReport,
      {"topocoll_doctor", ""},
      "a doctor's report",
      "report",
      "topocoll topo dump writes a machine"},
     {FileKind::kMachine,
      {"topocoll_topology", ""},
      "a topology",
      "machine",
      "topocoll plan make makes plans for it"},
     {FileKind::kMachine,
      {"nodes", "edges"},
      "a topology",
      "machine",
      "topocoll plan make makes plans for it"}}};

bool is(const JsonView& root, const Known& known) {
  return std::ranges::all_of(known.members,
                             [&](std::string_view m) { return m.empty() || root.has(m); });
}

}  // namespace

void refuse_other_files(const JsonView& root, FileKind wanted) {
  const auto found =
      std::ranges::find_if(kKnown, [&](const Known& known) { return is(root, known); });
  if (found == kKnown.end() || found->kind == wanted) return;
  const auto asked = std::ranges::find(kKnown, wanted, &Known::kind);
  root.fail(fmt::format("this is {}, and no {}: {}", found->what, asked->name, found->goes));
}

}  // namespace topocoll
