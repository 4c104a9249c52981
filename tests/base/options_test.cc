#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

namespace topocoll {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Options> parse(std::initializer_list<const char*> entries) {
  std::vector<const char*> environment(entries);
  environment.push_back(nullptr);
  return Options::from(environment.data());
}

std::string error(const char* entry) {
  const auto options = parse({entry});
  if (options.ok()) return "accepted";
  EXPECT_EQ(options.status().cause(), Cause::kInvalidArgument);
  return options.status().text();
}

OptionInfo info(const std::vector<OptionInfo>& rows, const std::string& name) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == name; });
  EXPECT_NE(row, rows.end()) << name;
  return row == rows.end() ? OptionInfo{} : *row;
}

TEST(Options, DefaultsHoldInAnEmptyEnvironment) {
  const auto options =
      parse({"HOME=/root", "TOPOCOL=no prefix of ours", "topocoll_commit=chained"});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(*options, Options());
  EXPECT_EQ(options->commit, CommitMode::kStrict);
  EXPECT_EQ(options->timeout, std::nullopt);
  EXPECT_EQ(options->shm_dir, "/dev/shm");
  EXPECT_EQ(options->spin, std::nullopt);
  EXPECT_TRUE(options->probe);
  EXPECT_FALSE(options->reproducible);
  EXPECT_EQ(options->log_level, LogLevel::kWarn);
  EXPECT_EQ(options->drain, milliseconds(10'000));
}

TEST(Options, EveryTypeIsRead) {
  const auto options =
      parse({"TOPOCOLL_COMMIT=chained", "TOPOCOLL_TIMEOUT_MS=1500", "TOPOCOLL_HOST_ID=node a",
             "TOPOCOLL_SHM_BACKING=devshm", "TOPOCOLL_SHM_DIR=/tmp/x=y", "TOPOCOLL_SHM_COPY=stream",
             "TOPOCOLL_SPIN_US=0", "TOPOCOLL_PROBE=off", "TOPOCOLL_ALL_REDUCE_ALGORITHM=two_shot",
             "TOPOCOLL_EAGER_BYTES=64K", "TOPOCOLL_REPRODUCIBLE=on", "TOPOCOLL_LOG_LEVEL=trace",
             "TOPOCOLL_STORE=[::1]:29500", "TOPOCOLL_JOB_SECRET=s3cret",
             "TOPOCOLL_SKIP_ABI_CHECK=on", "TOPOCOLL_DRAIN_MS=0"});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->commit, CommitMode::kChained);
  EXPECT_EQ(options->timeout, milliseconds(1500));
  EXPECT_EQ(options->host_id, "node a");
  EXPECT_EQ(options->shm_backing, ShmBacking::kDevShm);
  EXPECT_EQ(options->shm_dir, "/tmp/x=y");
  EXPECT_EQ(options->shm_copy, ShmCopy::kStream);
  EXPECT_EQ(options->spin, microseconds(0));
  EXPECT_FALSE(options->probe);
  EXPECT_EQ(options->all_reduce_algorithm, AllReduceAlgorithm::kTwoShot);
  EXPECT_EQ(options->eager_bytes, 65536u);
  EXPECT_TRUE(options->reproducible);
  EXPECT_EQ(options->log_level, LogLevel::kTrace);
  EXPECT_EQ(options->store, (Endpoint{"::1", 29500}));
  EXPECT_EQ(options->job_secret.text, "s3cret");
  EXPECT_TRUE(options->skip_abi_check);
  EXPECT_EQ(options->drain, milliseconds(0));
}

TEST(Options, UnknownNamesAreErrorsThatNameTheNearest) {
  EXPECT_THAT(error("TOPOCOLL_COMIT=strict"),
              AllOf(HasSubstr("unknown option TOPOCOLL_COMIT;"), HasSubstr("is TOPOCOLL_COMMIT ")));
  EXPECT_THAT(error("TOPOCOLL_TIMEOUT=3"), HasSubstr("is TOPOCOLL_TIMEOUT_MS "));
  EXPECT_THAT(error("TOPOCOLL_ALLREDUCE_ALGO=x"), HasSubstr("is TOPOCOLL_ALL_REDUCE_ALGORITHM "));
  EXPECT_THAT(error("TOPOCOLL_="), HasSubstr("unknown option TOPOCOLL_ (`topocoll"));
  EXPECT_THAT(error("TOPOCOLL_FOO=1"), Not(HasSubstr("nearest"))) << "no typing error of anything";
  EXPECT_THAT(error("TOPOCOLL_XYZ="), HasSubstr("unknown option")) << "also without a value";
}

TEST(Options, BadValuesAreErrorsThatSayWhatIsAllowed) {
  EXPECT_THAT(
      error("TOPOCOLL_COMMIT=Strict"),
      AllOf(HasSubstr("TOPOCOLL_COMMIT"), HasSubstr("'Strict'"), HasSubstr("strict|chained")));
  EXPECT_THAT(error("TOPOCOLL_PROBE=1"), HasSubstr("on|off"));
  EXPECT_THAT(error("TOPOCOLL_TIMEOUT_MS=0"), HasSubstr("caller|milliseconds 1..2592000000"));
  EXPECT_THAT(error("TOPOCOLL_TIMEOUT_MS=-1"), HasSubstr("'-1'"));
  EXPECT_THAT(error("TOPOCOLL_TIMEOUT_MS=10s"), HasSubstr("'10s'"));
  EXPECT_THAT(error("TOPOCOLL_TIMEOUT_MS=99999999999999999999"), HasSubstr("not valid"));
  EXPECT_THAT(error("TOPOCOLL_SPIN_US=1000001"), HasSubstr("microseconds 0..1000000"));
  EXPECT_THAT(error("TOPOCOLL_EAGER_BYTES=2G"), HasSubstr("bytes 0..1073741824"));
  EXPECT_THAT(error("TOPOCOLL_EAGER_BYTES=18014398509481984K"), HasSubstr("bytes")) << "wraps";
  EXPECT_THAT(error("TOPOCOLL_EAGER_BYTES=K"), HasSubstr("'K'"));
  EXPECT_THAT(error("TOPOCOLL_SHM_DIR=shm"), HasSubstr("absolute"));
  EXPECT_THAT(error("TOPOCOLL_HOST_ID=a\nb"), AllOf(HasSubstr("'a?b'"), Not(HasSubstr("\n"))));
}

TEST(Options, EndpointsNeedHostAndPort) {
  for (const char* bad :
       {"TOPOCOLL_STORE=host", "TOPOCOLL_STORE=:1", "TOPOCOLL_STORE=host:", "TOPOCOLL_STORE=host:0",
        "TOPOCOLL_STORE=host:65536", "TOPOCOLL_STORE=::1:80", "TOPOCOLL_STORE=h:1:2"}) {
    EXPECT_THAT(error(bad), HasSubstr("host:port")) << bad;
  }
  EXPECT_EQ(parse({"TOPOCOLL_STORE=10.0.0.1:1"})->store, (Endpoint{"10.0.0.1", 1}));
}

TEST(Options, SuffixesOfBytesArePowersOf1024) {
  EXPECT_EQ(parse({"TOPOCOLL_EAGER_BYTES=17"})->eager_bytes, 17u);
  EXPECT_EQ(parse({"TOPOCOLL_EAGER_BYTES=1M"})->eager_bytes, 1u << 20);
  EXPECT_EQ(parse({"TOPOCOLL_EAGER_BYTES=32k"})->eager_bytes, 32u << 10);
  EXPECT_EQ(parse({"TOPOCOLL_EAGER_BYTES=32K"})->eager_bytes, 32u << 10);
  EXPECT_EQ(parse({"TOPOCOLL_EAGER_BYTES=1g"})->eager_bytes, 1u << 30);
  EXPECT_EQ(parse({"TOPOCOLL_EAGER_BYTES=1G"})->eager_bytes, 1u << 30);
}

TEST(Options, AnEmptyValueIsNotSetAndTheFirstOfTwoCounts) {
  EXPECT_EQ(*parse({"TOPOCOLL_COMMIT=", "TOPOCOLL_TIMEOUT_MS=", "TOPOCOLL_STORE"}), Options());
  EXPECT_EQ(parse({"TOPOCOLL_DRAIN_MS=1", "TOPOCOLL_DRAIN_MS=2"})->drain, milliseconds(1));
}

TEST(Options, SecretsAreNeverShown) {
  const char* environment[] = {"TOPOCOLL_JOB_SECRET=hush-hush", nullptr};
  const auto rows = list_options(environment);
  ASSERT_TRUE(rows.ok());
  for (const auto& row : *rows) {
    for (const auto& text : {row.value, row.fallback, row.help, row.type}) {
      EXPECT_THAT(text, Not(HasSubstr("hush")));
    }
  }
  EXPECT_EQ(info(*rows, "TOPOCOLL_JOB_SECRET").value, "(set)");
  EXPECT_EQ(info(*rows, "TOPOCOLL_JOB_SECRET").fallback, "(not set)");
  const std::string entry = "TOPOCOLL_JOB_SECRET=" + std::string(1025, 'h');
  EXPECT_THAT(error(entry.c_str()), AllOf(HasSubstr("1024 bytes"), Not(HasSubstr("hhh"))));
}

TEST(Options, TheListSaysValueFallbackAndOrigin) {
  const char* environment[] = {"TOPOCOLL_SPIN_US=50", nullptr};
  const auto rows = list_options(environment);
  ASSERT_TRUE(rows.ok());
  const auto spin = info(*rows, "TOPOCOLL_SPIN_US");
  EXPECT_EQ(spin.value, "50");
  EXPECT_EQ(spin.fallback, "auto");
  EXPECT_EQ(spin.origin, "environment");
  const auto commit = info(*rows, "TOPOCOLL_COMMIT");
  EXPECT_EQ(commit.type, "strict|chained");
  EXPECT_EQ(commit.value, "strict");
  EXPECT_EQ(commit.origin, "default");
  const char* bad[] = {"TOPOCOLL_NOPE=1", "TOPOCOLL_COMMIT=maybe", "TOPOCOLL_SPIN_US=50", nullptr};
  EXPECT_FALSE(list_options(bad).ok());
  const OptionTable table = option_table(bad);
  ASSERT_EQ(table.errors.size(), 2u);
  EXPECT_THAT(table.errors[0].text(), HasSubstr("TOPOCOLL_NOPE"));
  EXPECT_THAT(table.errors[1].text(), HasSubstr("'maybe'"));
  EXPECT_EQ(table.rows.size(), rows->size());
  EXPECT_EQ(info(table.rows, "TOPOCOLL_COMMIT").value, "strict");
  EXPECT_EQ(info(table.rows, "TOPOCOLL_SPIN_US").value, "50");
}

// What `topocoll options` prints can be pasted back into the environment.
TEST(Options, EveryShownValueIsAccepted) {
  const char* none[] = {nullptr};
  const auto rows = list_options(none);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->size(), 18u);
  for (const auto& row : *rows) {
    EXPECT_TRUE(row.name.starts_with("TOPOCOLL_"));
    EXPECT_EQ(row.value, row.fallback) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    if (row.name == "TOPOCOLL_JOB_SECRET") continue;
    const std::string entry = row.name + "=" + row.value;
    const auto options = parse({entry.c_str()});
    ASSERT_TRUE(options.ok()) << options.status().to_string();
    EXPECT_EQ(*options, Options()) << entry;
  }
}

TEST(Options, TheProcessEnvironmentIsReadAnew) {
  ASSERT_EQ(setenv("TOPOCOLL_DRAIN_MS", "77", 1), 0);
  EXPECT_EQ(Options::from_environment()->drain, milliseconds(77));
  ASSERT_EQ(setenv("TOPOCOLL_DRAIN_MS", "78", 1), 0);
  EXPECT_EQ(Options::from_environment()->drain, milliseconds(78));
  EXPECT_EQ(info(*list_options(), "TOPOCOLL_DRAIN_MS").origin, "environment");
  ASSERT_EQ(unsetenv("TOPOCOLL_DRAIN_MS"), 0);
}

}  // namespace
}  // namespace topocoll
