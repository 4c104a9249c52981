// Groups whose segment is a file: that work, whose file system is full, whose directory cannot be
// used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.h"
#include "support/temporary_directory.h"

namespace topocoll {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_ranks;
using testing::TemporaryDirectory;

class FileBacking : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(setenv("TOPOCOLL_SHM_BACKING", "devshm", 1), 0); }
  void TearDown() override {
    unsetenv("TOPOCOLL_SHM_BACKING");
    unsetenv("TOPOCOLL_SHM_DIR");
  }
  static void use(const std::string& directory) {
    ASSERT_EQ(setenv("TOPOCOLL_SHM_DIR", directory.c_str(), 1), 0);
  }
  TemporaryDirectory directory_;
};

Status sum_of_ones(Communicator& comm, std::size_t count) {
  std::vector<float> in(count, 1.0f), out(count);
  Status s = comm.all_reduce(in.data(), out.data(), count, DataType::kF32, ReduceOp::kSum);
  if (s.ok() && out != std::vector<float>(count, static_cast<float>(comm.size()))) {
    return Status(Cause::kInternal, "wrong result");
  }
  return s;
}

TEST_F(FileBacking, ServesAGroupAndLeavesNoFile) {
  use(directory_.path());
  run_ranks(3, [&](Communicator& comm) {
    std::ostringstream maps;
    maps << std::ifstream("/proc/self/maps").rdbuf();
    EXPECT_THAT(maps.str(), HasSubstr(directory_.path() + "/topocoll-"));
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "also while it is used";
    for (const std::size_t count : {1, 5000, 1 << 19}) {
      const Status s = sum_of_ones(comm, count);
      EXPECT_TRUE(s.ok()) << s.to_string();
    }
    int token = comm.rank();
    const int next = (comm.rank() + 1) % 3, last = (comm.rank() + 2) % 3;
    EXPECT_TRUE(comm.send(&token, 1, DataType::kI32, next).ok());
    EXPECT_TRUE(comm.recv(&token, 1, DataType::kI32, last).ok());
    EXPECT_EQ(token, last);
  });
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(FileBacking, AFullFileSystemIsOneErrorOfTheOperationThatNeedsMore) {
  if (!directory_.mount_tmpfs(8 << 20))
    GTEST_SKIP() << "mounting a tmpfs: " << std::strerror(errno);
  use(directory_.path());
  std::vector<Status> ended(2);
  run_ranks(2, [&](Communicator& comm) {
    const Status small = sum_of_ones(comm, 1000);
    EXPECT_TRUE(small.ok()) << small.to_string();
    ended[static_cast<std::size_t>(comm.rank())] = sum_of_ones(comm, (16 << 20) / sizeof(float));
    EXPECT_EQ(sum_of_ones(comm, 1).cause(), Cause::kResource) << "the group has ended";
  });
  for (const Status& s : ended) {
    EXPECT_EQ(s.cause(), Cause::kResource);
    EXPECT_EQ(s.to_string(), ended[0].to_string());
    EXPECT_THAT(s.to_string(), AllOf(HasSubstr("all_reduce"), HasSubstr("number 2"),
                                     HasSubstr("a group's pipeline needs"),
                                     HasSubstr("of 8 MiB free"), HasSubstr("No space left")));
  }
}

TEST_F(FileBacking, ADirectoryThatCannotBeUsedIsOneErrorOnEveryRank) {
  const std::string missing = directory_.path() + "/missing";
  const std::string file = directory_.path() + "/file";
  std::ofstream(file) << "no directory";
  // /proc refuses files even of root.
  for (const std::string& unusable : {missing, file, std::string("/proc")}) {
    use(unusable);
    const auto store = make_memory_store();
    std::vector<Status> refused(3);
    std::vector<std::thread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        CommunicatorOptions o;
        o.rank = r;
        o.size = 3;
        o.store = store;
        o.timeout = std::chrono::seconds(30);
        refused[static_cast<std::size_t>(r)] = Communicator::create(o).status();
      });
    }
    for (std::thread& t : threads) t.join();
    for (const Status& s : refused) {
      EXPECT_EQ(s.cause(), Cause::kSystem);
      EXPECT_EQ(s.to_string(), refused[0].to_string());
      EXPECT_THAT(s.text(),
                  AllOf(HasSubstr("rank 0: "), HasSubstr(unusable + " (TOPOCOLL_SHM_DIR)")));
    }
  }
}

}  // namespace
}  // namespace topocoll
