#include "files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "command.h"

namespace topocoll::tools {
namespace {

namespace fs = std::filesystem;

/// While one lives, files cannot grow beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit low = before_;
    low.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(Files, WhatIsThereStaysUntilTheNewTextIsWhole) {
  const testing::TemporaryFile file("old");
  {
    const FileSizeLimit full(4096);
    const Status s = write_file(file.path(), std::string(100'000, 'x'));
    EXPECT_EQ(s.cause(), Cause::kSystem);
    EXPECT_NE(s.text().find(file.path()), std::string::npos) << s.text();
  }
  EXPECT_EQ(*read_file(file.path()), "old");
  for (const auto& entry : fs::directory_iterator(fs::path(file.path()).parent_path())) {
    EXPECT_FALSE(entry.path().string().starts_with(file.path() + "."))
        << entry.path() << " was left";
  }
  EXPECT_TRUE(write_file(file.path(), "new").ok());
  EXPECT_EQ(*read_file(file.path()), "new");
}

TEST(Files, LinksAreFollowedAndPermissionsKept) {
  const testing::TemporaryFile file("old");
  ASSERT_EQ(::chmod(file.path().c_str(), 0600), 0);
  const std::string link = file.path() + "-link";
  fs::create_symlink(file.path(), link);
  EXPECT_TRUE(write_file(link, "new").ok());
  EXPECT_TRUE(fs::is_symlink(link));
  fs::remove(link);
  EXPECT_EQ(*read_file(file.path()), "new");
  EXPECT_EQ(fs::status(file.path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Files, DevicesTakeTheTextThemselves) {
  EXPECT_TRUE(write_file("/dev/null", "x").ok());
  EXPECT_FALSE(fs::is_regular_file("/dev/null"));
  EXPECT_NE(write_file("/nowhere/x", "x").text().find("/nowhere/x: No such file"),
            std::string::npos);
}

}  // namespace
}  // namespace topocoll::tools
