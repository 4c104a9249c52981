// Texts that are almost right: no reader may crash or hang, and what is read can be written and
// read.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/mutate.h"
#include "topology/formats/machines.h"

namespace topocoll {
namespace {

constexpr unsigned kSeed = 20240607;

/// How many of the mutants were read.
int mutate(const std::string& original, int rounds) {
  testing::Mutator mutator(kSeed);
  int read = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutator.mutated(original, original);
    const auto t = import_topology(text, "mutant");
    if (!t.ok()) {
      EXPECT_EQ(t.status().text().rfind("mutant", 0), 0U) << t.status().text();
      continue;
    }
    ++read;
    const auto back = topology_from_json(to_json(*t));
    EXPECT_TRUE(back.ok()) << "seed " << kSeed << " round " << i << ": " << back.status().text();
    (void)check_topology(*t);
    (void)render_matrix(*t);
    (void)render_svg(*t, {});
    if (const auto nccl = to_nccl_xml(*t); nccl.ok()) {
      const auto again = import_topology(*nccl, "again");
      EXPECT_TRUE(again.ok()) << "seed " << kSeed << " round " << i << ": "
                              << again.status().text();
    }
    if (::testing::Test::HasFailure()) break;
  }
  return read;
}

TEST(Mutations, NcclXml) {
  const std::string folder = std::string(TOPOCOLL_TEST_DATA) + "/topologies/";
  EXPECT_GT(mutate(file_text(folder + "synthetic_v100_cube_mesh.xml"), 1500), 50);
  EXPECT_GT(mutate(file_text(folder + "synthetic_gb200_tray.xml"), 1500), 50);
}

TEST(Mutations, HwlocXml) {
  const std::string folder = std::string(TOPOCOLL_TEST_DATA) + "/topologies/";
  const auto text = to_hwloc_xml(imported(file_text(folder + "synthetic_v100_cube_mesh.xml")));
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_GT(mutate(*text, 400), 5);
}

TEST(Mutations, BareGraphs) {
  EXPECT_GT(
      mutate("{\"unit\": \"GB/s per direction\",\n\"nodes\": [{\"id\": \"a\", \"kind\": \"gpu\"},\n"
             "{\"id\": \"b\", \"kind\": \"sw\"}],\n\"edges\": [[\"a\", \"b\", 12.5],\n[\"b\", "
             "\"a\", 3]]}",
             3000),
      5);
}

}  // namespace
}  // namespace topocoll
