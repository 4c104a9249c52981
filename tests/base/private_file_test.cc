#include "base/private_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace topocoll {
namespace {

namespace fs = std::filesystem;

TEST(PrivateFile, ComesBackAndReplacesItsPredecessor) {
  const std::string above =
      ::testing::TempDir() + "/topocoll_private_" + std::to_string(::getpid());
  fs::remove_all(above);
  const std::string directory = above + "/a/b";
  const std::string path = directory + "/name";
  EXPECT_EQ(read_private_file(path, 100).status().text(), path + ": No such file or directory");
  for (const std::string& text : {std::string("first"), std::string(1 << 20, 'x'), std::string()}) {
    ASSERT_TRUE(write_private_file(directory, "name", text).ok());
    EXPECT_EQ(read_private_file(path, 1 << 20).value(), text);
  }
  ASSERT_TRUE(write_private_file(directory, "name", "123456").ok());
  EXPECT_EQ(read_private_file(path, 5).status().text(), path + ": larger than 5 B");
  fs::create_directory(directory + "/folder");
  EXPECT_FALSE(read_private_file(directory + "/folder", 5).ok());
  EXPECT_FALSE(write_private_file(directory, "folder", "x").ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), fs::directory_iterator()), 2)
      << "an unfinished file is left";
  fs::remove_all(above);
}

TEST(PrivateFile, TheUsersDirectoryFollowsTheSpecification) {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto set = [](const char* name, const std::optional<std::string>& value) {
    value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  };
  const auto cache = get("XDG_CACHE_HOME");
  const auto home = get("HOME");
  set("HOME", "/home/me");
  set("XDG_CACHE_HOME", "/var/cache/me");
  EXPECT_EQ(user_cache_directory().value(), "/var/cache/me/topocoll");
  set("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(user_cache_directory().value(), "/home/me/.cache/topocoll");
  set("XDG_CACHE_HOME", std::nullopt);
  set("HOME", std::nullopt);
  EXPECT_EQ(user_cache_directory().status().cause(), Cause::kUnsupported);
  set("XDG_CACHE_HOME", cache);
  set("HOME", home);
}

}  // namespace
}  // namespace topocoll
