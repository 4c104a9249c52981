#include "base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "support/temporary_directory.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

TEST(RegularFile, IsReadWholeUpToItsLimit) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  std::ofstream(path) << "12345";
  EXPECT_EQ(read_regular_file(path, 5).value(), "12345");
  EXPECT_EQ(read_regular_file(path, 4).status().text(), path + ": larger than 4 B");
}

TEST(RegularFile, WhatMayHoldUpAReaderIsRefused) {
  const testing::TemporaryDirectory directory;
  const std::string pipe = directory.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_regular_file(pipe, 5).status().text(), pipe + ": is no regular file");
  EXPECT_THAT(read_regular_file("/dev/zero", 5).status().text(), HasSubstr("no regular file"));
  EXPECT_THAT(read_regular_file(directory.path(), 5).status().text(), HasSubstr("Is a directory"));
  EXPECT_THAT(read_regular_file(directory.path() + "/none", 5).status().text(),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace topocoll
