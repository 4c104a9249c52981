// "topocoll topo probe-net" on networks with faults: network namespaces joined by bridges, which
// need root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perf/child.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Finished shell(const std::string& script) { return run({"/bin/sh", "-ec", script}, {}); }

/// Hosts are namespaces: a, b and c, with eth0 on one bridge.
class ProbeNet : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/topocoll_net_" + std::to_string(::getpid());
    fs::create_directories(folder_);
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    const Finished made = shell("command -v ip tc >/dev/null && ip netns add " + name("switch") +
                                " && ip -n " + name("switch") + " link add br0 type bridge" +
                                " && ip -n " + name("switch") + " link set br0 up");
    if (made.status != 0) GTEST_SKIP() << "no namespaces or bridges here: " << made.err;
  }
  void TearDown() override {
    for (const std::string host : {"a", "b", "c", "switch"}) {
      shell("ip netns pids " + name(host) + " | xargs -r kill; ip netns del " + name(host) +
            " || true");
    }
    fs::remove_all(folder_);
  }

  static std::string name(const std::string& host) {
    return "topocoll" + std::to_string(::getpid()) + host;
  }
  static void expect_done(const std::string& script) {
    const Finished f = shell(script);
    ASSERT_EQ(f.status, 0) << script << "\n" << f.err;
  }
  static void add_host(const std::string& host) {
    expect_done("ip netns add " + name(host) + "; ip -n " + name(host) + " link set lo up");
  }
  /// An interface on a bridge. Addresses are usable at once, without looking for duplicates.
  static void add_interface(const std::string& host, const std::string& interface,
                            const std::string& bridge, const std::string& address) {
    const std::string on = "ip -n " + name(host);
    const std::string port = host + interface;
    const std::string at = "ip -n " + name("switch") + " link set " + port;
    expect_done(on + " link add " + interface + " type veth peer name " + port + " netns " +
                name("switch") + "; " + at + " master " + bridge + "; " + at + " up; " + on +
                " addr add " + address + " dev " + interface +
                (address.find(':') != address.npos ? " nodad; " : "; ") + on + " link set " +
                interface + " up");
  }
  /// Limits what leaves by eth0, so that equals are equal on a busy machine too.
  static void shape(const std::string& host, const std::string& rate) {
    const std::string tc = "ip netns exec " + name(host) + " tc ";
    const Finished f = shell(tc + "qdisc add dev eth0 root handle 1: htb default 1 r2q 100; " + tc +
                             "class add dev eth0 parent 1: classid 1:1 htb rate " + rate);
    if (f.status != 0) GTEST_SKIP() << "this kernel shapes no traffic: " << f.err;
  }
  static void slow_down(const std::string& host, const std::string& towards,
                        const std::string& rate) {
    const std::string tc = "ip netns exec " + name(host) + " tc ";
    expect_done(tc + "class add dev eth0 parent 1: classid 1:2 htb rate " + rate + "; " + tc +
                "filter add dev eth0 parent 1: protocol ip u32 match ip dst " + towards +
                " flowid 1:2");
  }
  static std::string command(const std::string& host, const std::string& arguments) {
    return "TOPOCOLL_JOB_SECRET=s TOPOCOLL_HOST_ID=" + host + " ip netns exec " + name(host) + " " +
           TOPOCOLL_COMMAND + " topo probe-net " + arguments;
  }
  /// A listener in the background, which is there when this returns.
  void listen(const std::string& host, const std::string& on = "") {
    const std::string log = folder_ + "/" + host;
    expect_done("(" + command(host, "--for 60 --listen " + on) + " > " + log +
                " 2>&1 &); for i in $(seq 200); do grep -q listening " + log +
                " && exit 0; sleep 0.05; done; cat " + log + " >&2; exit 1");
  }
  static Finished probe(const std::string& arguments) {
    return shell("timeout 90 " + std::string("env ") + command("a", arguments));
  }
  /// What "topo check" makes of the saved topology.
  json findings(const std::string& topology) {
    std::ofstream(folder_ + "/net.json") << topology;
    const Finished f =
        run({TOPOCOLL_COMMAND, "topo", "check", "--json", folder_ + "/net.json"}, {});
    return json::parse(f.out);
  }

  std::string folder_;
};

TEST_F(ProbeNet, ASlowPairAmongEqualsIsFoundAndNamed) {
  int i = 1;
  for (const std::string host : {"a", "b", "c"}) {
    add_host(host);
    add_interface(host, "eth0", "br0", "10.9.0." + std::to_string(i++) + "/24");
    shape(host, "200mbit");
    if (IsSkipped()) return;
  }
  listen("b");
  listen("c");
  const std::string peers = "--peer 10.9.0.2 --peer 10.9.0.3";
  const Finished fine = probe(peers);
  EXPECT_EQ(fine.status, 0) << fine.out << fine.err;
  EXPECT_THAT(fine.out, HasSubstr("no findings"));
  slow_down("b", "10.9.0.3", "30mbit");  // neither end is this host
  const Finished found = probe(peers + " --json");
  EXPECT_EQ(found.status, 3) << found.err;
  const json list = findings(found.out);
  ASSERT_EQ(list.size(), 1U) << list.dump(1);
  EXPECT_EQ(list[0]["code"], "network-pair-slow");
  EXPECT_EQ(list[0]["nodes"], json({"b/port:eth0", "c/port:eth0"}));
  EXPECT_NEAR(list[0]["loss_percent"].get<double>(), 85, 8);
  EXPECT_THAT(list[0]["fix"].get<std::string>(), HasSubstr("on b: topocoll topo probe-net"));
}

TEST_F(ProbeNet, AnInterfaceOnABridgeOfItsOwnIsFoundAndNamed) {
  expect_done("ip -n " + name("switch") + " link add br1 type bridge; ip -n " + name("switch") +
              " link set br1 up");
  for (const std::string host : {"a", "b"}) {
    add_host(host);
    const std::string number = host == "a" ? "1" : "2";
    add_interface(host, "eth0", "br0", "10.9.0." + number + "/24");
    add_interface(host, "eth1", host == "a" ? "br1" : "br0", "10.9.1." + number + "/24");
  }
  listen("b");
  const Finished found = probe("--peer 10.9.0.2 --stream-ms 20 --connect-ms 300");
  EXPECT_EQ(found.status, 3) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("error network-unreachable: a/port:eth1 cannot reach host b"));
  EXPECT_THAT(found.out, HasSubstr("10.9.1.2 from 10.9.1.1: no"));
  EXPECT_THAT(found.out, HasSubstr("fix:  on a: ping -c 3 -I eth1 10.9."));
  EXPECT_THAT(found.out, Not(HasSubstr("a/port:eth0 cannot")));
}

TEST_F(ProbeNet, HostsWithoutIPv4) {
  for (const std::string host : {"a", "b"}) {
    add_host(host);
    add_interface(host, "eth0", "br0", host == "a" ? "fd00:9::1/64" : "fd00:9::2/64");
  }
  listen("b", "eth0");
  const Finished f = probe("--peer fd00:9::2 --stream-ms 20 --json");
  EXPECT_EQ(f.status, 0) << f.out << f.err;
  int edges = 0;
  const json topology = json::parse(f.out);
  for (const json& edge : topology["edges"]) edges += edge["kind"] == "network" ? 1 : 0;
  EXPECT_EQ(edges, 2);
  const Finished brackets = probe("--peer [fd00:9::2]:29517 --interface eth0 --stream-ms 20");
  EXPECT_EQ(brackets.status, 0) << brackets.out << brackets.err;
  EXPECT_THAT(brackets.out, HasSubstr("a/port:eth0 - b/port:eth0"));
  EXPECT_THAT(probe("--peer fd00:9::1").err, HasSubstr("peer fd00:9::1 is this host"));
}

TEST_F(ProbeNet, BadCommandLines) {
  const auto refused = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {TOPOCOLL_COMMAND, "topo", "probe-net"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command, {{"TOPOCOLL_JOB_SECRET", "s"}});
  };
  EXPECT_EQ(refused({}).status, 2);
  EXPECT_EQ(refused({"--listen", "--peer", "h"}).status, 2);
  EXPECT_EQ(refused({"--peer", "h", "--stream-ms", "0"}).status, 2);
  EXPECT_THAT(refused({"--listen", "no-such-if"}).err, HasSubstr("there are: "));
}

}  // namespace
}  // namespace topocoll
