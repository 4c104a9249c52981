#include "topocoll/version.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace topocoll {
namespace {

TEST(Version, LibraryAndHeadersAgree) { EXPECT_EQ(version(), TOPOCOLL_VERSION_STRING); }

TEST(Version, WireVersionIsPositive) { EXPECT_GE(wire_version(), 1); }

TEST(Version, BuildIdNamesVersionCompilerAndLayout) {
  const std::string id(build_id());
  EXPECT_TRUE(
      std::regex_match(id, std::regex(R"(\d+\.\d+\.\d+ (gcc|clang)-\d+\.\d+\S* [0-9a-f]{8})")))
      << id;
  EXPECT_TRUE(id.starts_with(std::string(version()) + " "));
  EXPECT_EQ(build_id().data(), build_id().data()) << "made once";
}

}  // namespace
}  // namespace topocoll
