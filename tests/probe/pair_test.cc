#include "probe/pair.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>

#include "probe/cpu_link.h"
#include "support/cpus.h"
#include "support/fault_os.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FaultOs;
using testing::two_cpus;

struct Words {
  alignas(128) PairEnd::Word first{0};
  alignas(128) PairEnd::Word second{0};
  PairRequest request(std::chrono::milliseconds patience = 10s) {
    return {two_cpus(), {&first, &second}, patience};
  }
};

TEST(Pair, BothEndsRunOnTheirCpusAndTakeTurns) {
  Words words;
  std::array<int, 2> cpu{-1, -1};
  std::array<bool, 2> timed{};
  const Status s = run_pair(Os::real(), words.request(), [&](PairEnd& end, int side) {
    cpu[static_cast<std::size_t>(side)] = ::sched_getcpu();
    timed[static_cast<std::size_t>(side)] = end.time_turns(10).value_or(0) > 0;
  });
  ASSERT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(cpu, two_cpus());
  EXPECT_TRUE(timed[0] && timed[1]);
  EXPECT_EQ(words.first.load(), 11u) << "one turn to wake up, and ten";
}

TEST(Pair, TheCallerKeepsItsCpus) {
  const std::vector<int> before = Os::real().usable_cpus();
  Words words;
  ASSERT_TRUE(run_pair(Os::real(), words.request(), [](PairEnd&, int) {}).ok());
  EXPECT_EQ(Os::real().usable_cpus(), before);
}

TEST(Pair, ACpuThatCannotBeHadIsNamed) {
  FaultOs os;
  os.fail("pin_thread", Status(Cause::kSystem, "no"), {.from = 1, .to = 1});
  Words words;
  const Status s = run_pair(os, words.request(), [](PairEnd& end, int) { end.turn(); });
  EXPECT_EQ(s.cause(), Cause::kSystem);
  EXPECT_NE(s.text().find("no thread may run there"), std::string::npos) << s.text();
  // The kernel has no such CPU; the other end must not wait for it.
  PairRequest request = words.request();
  request.cpus[1] = 1 << 19;
  EXPECT_EQ(run_pair(Os::real(), request, [](PairEnd& end, int) { end.turn(); }).text(),
            "CPU 524288: no thread may run there any more");
}

TEST(Pair, AnEndThatDoesNotComeEndsThePair) {
  Words words;
  const Status s = run_pair(Os::real(), words.request(20ms),
                            [](PairEnd& end, int side) { EXPECT_FALSE(side == 0 && end.turn()); });
  EXPECT_EQ(s.cause(), Cause::kTimeout);
  EXPECT_NE(s.text().find("busy for over 20 ms"), std::string::npos) << s.text();
}

TEST(CpuLink, HasALatencyAndABandwidthEachWay) {
  const auto cpus = two_cpus();
  if (cpus[0] == cpus[1]) GTEST_SKIP() << "this process may use one CPU only";
  const auto link = measure_cpu_link(Os::real(), cpus, 300ms);
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  for (const Figure& f : {link->latency_ns, link->bandwidth_gbps[0], link->bandwidth_gbps[1]}) {
    ASSERT_TRUE(f.measured && f.spread);
    EXPECT_GT(*f.measured, 0);
    EXPECT_LE(f.spread->low, *f.measured);
    EXPECT_GE(f.spread->high, *f.measured);
    EXPECT_GE(f.spread->samples, 1);
    EXPECT_LE(f.spread->samples, 99);
  }
  EXPECT_LE(link->latency_ns.spread->best, *link->latency_ns.measured);
  EXPECT_GE(link->bandwidth_gbps[0].spread->best, *link->bandwidth_gbps[0].measured);
}

}  // namespace
}  // namespace topocoll
