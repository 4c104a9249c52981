#include "control/bootstrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "topocoll/version.h"
#include "transport/shm/gate.h"

namespace topocoll {
namespace {

using std::chrono::milliseconds;

/// A connection's first and only message to rank 0.
struct SocketHello {
  Token secret;
  std::int32_t rank;
};

/// A stranger that connects must not hold up the group for longer than this.
constexpr milliseconds kHelloTimeout{2000};
/// A rank's hello comes in one piece: who sends half of one is no rank.
constexpr milliseconds kHalfHelloTimeout{50};
/// How often a rank that serves or waits looks whether another one gave up.
constexpr milliseconds kLookInterval{200};
constexpr milliseconds kShortestPause{1};
constexpr milliseconds kLongestPause{16};
/// What a rank allows rank 0 beyond the timeout for telling who is missing.
constexpr milliseconds kVerdictGrace{1000};

using Fields = std::map<std::string, std::string>;

std::string encode(const Fields& fields) {
  std::string text;
  for (const auto& [key, value] : fields) text += fmt::format("{}={}\n", key, value);
  return text;
}

Fields decode(const std::string& text) {
  Fields fields;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (const auto equals = line.find('='); equals != std::string::npos) {
      fields[line.substr(0, equals)] = line.substr(equals + 1);
    }
    at = end + 1;
  }
  return fields;
}

std::optional<Token> parse_token(const std::string& hex) {
  Token token;
  if (hex.size() != token.size() * 2) return std::nullopt;
  for (std::size_t i = 0; i < token.size(); ++i) {
    unsigned byte = 0;
    for (char c : {hex[2 * i], hex[2 * i + 1]}) {
      const auto digit = std::string_view("0123456789abcdef").find(c);
      if (digit == std::string_view::npos) return std::nullopt;
      byte = byte * 16 + static_cast<unsigned>(digit);
    }
    token[i] = static_cast<std::byte>(byte);
  }
  return token;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? "unknown" : id;
}

/// Socket names are valid within one of these.
std::string network_namespace() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/ns/net", unknown).string();
}

/// One rank's part in one meeting.
class Bootstrap {
 public:
  Bootstrap(Os& os, const BootstrapOptions& options)
      : os_(os), o_(options), deadline_(os.now() + options.timeout) {}

  Status decline(Status status) {
    if (o_.size <= 1 || o_.rank < 0 || o_.rank >= o_.size || o_.store == nullptr || !enter().ok()) {
      return status;
    }
    static_cast<void>(
        give_up(Status::operation(status.cause(), {o_.rank}, epoch_, 0, "",
                                  fmt::format("rank {}: {}", o_.rank, status.text()))));
    return status;
  }

  Result<Assembly> run() {
    host_id_ = o_.host_id.empty() ? boot_id() : o_.host_id;
    if (o_.size == 1) return alone();
    if (o_.store == nullptr) {
      return Status(Cause::kInvalidArgument, "a group of more than one rank needs a store");
    }
    if (Status s = join(); !s.ok()) return give_up(std::move(s));
    auto assembly = o_.rank == 0 ? host() : visit();
    if (!assembly.ok()) return give_up(assembly.status());
    return assembly;
  }

 private:
  std::string key(const std::string& suffix) const { return base_ + "/" + suffix; }

  shm::SegmentOptions segment_options() const {
    return {
        .ranks = o_.size, .epoch = epoch_, .backing = o_.backing, .directory = o_.shm_directory};
  }

  Result<Assembly> alone() {
    auto segment = shm::Segment::create(os_, segment_options());
    if (!segment.ok()) return segment.status();
    return Assembly{std::move(*segment), {}, epoch_, host_id_};
  }

  /// Tells the others, once, and hands the error on.
  Status give_up(Status status) {
    const bool own = status.cause() == Cause::kResource || status.cause() == Cause::kSystem;
    if (!told_ && own && status.culprits().empty()) {
      status = Status::operation(status.cause(), {o_.rank}, epoch_, 0, "",
                                 fmt::format("rank {}: {}", o_.rank, status.text()));
    }
    if (!told_ && !base_.empty()) {
      told_ = true;
      const Status ignored = o_.store->set(
          key("failed"), encode({{"cause", std::to_string(static_cast<int>(status.cause()))},
                                 {"culprits", fmt::format("{}", fmt::join(status.culprits(), " "))},
                                 {"text", one_line(status.text())},
                                 {"rank", std::to_string(o_.rank)}}));
      static_cast<void>(ignored);  // the store itself may be what failed
    }
    return status;
  }

  /// The error with which another rank gave up, if one did.
  std::optional<Status> others_failure() {
    auto failed = o_.store->contains(key("failed"));
    if (!failed.ok()) return failed.status();
    if (!*failed) return std::nullopt;
    auto text = o_.store->get(key("failed"), kVerdictGrace);
    if (!text.ok()) return text.status();
    told_ = true;
    Fields f = decode(*text);
    const int cause =
        std::clamp(std::atoi(f["cause"].c_str()), 1, static_cast<int>(Cause::kInternal));
    std::vector<int> culprits;
    std::istringstream list(f["culprits"]);
    for (int rank = 0; list >> rank;) culprits.push_back(rank);
    if (culprits.empty()) return Status(static_cast<Cause>(cause), f["text"]);
    return Status::operation(static_cast<Cause>(cause), std::move(culprits), epoch_, 0, "",
                             f["text"]);
  }

  /// Rank 0 hung up: if it gave up, its words say more than that.
  Status or_verdict(Status status) {
    if (status.cause() != Cause::kPeerLeft && status.cause() != Cause::kSystem) return status;
    const TimePoint until = os_.now() + kVerdictGrace;
    do {
      auto failed = o_.store->contains(key("failed"));
      if (!failed.ok()) return status;
      if (*failed) return others_failure().value_or(status);
      os_.sleep(kLongestPause);
    } while (os_.now() < until);
    return Status::operation(status.cause(), {0}, epoch_, 0, "", status.text());
  }

  /// Waits for a key that `author` writes by asking again and again, so that another rank's failure
  /// or the author's death is noticed, and because some stores complain aloud about a get() that
  /// times out.
  Result<std::string> await(const std::string& suffix, int author, TimePoint deadline) {
    TimePoint look = os_.now() + kLookInterval;
    for (milliseconds pause = kShortestPause;; pause = std::min(2 * pause, kLongestPause)) {
      auto there = o_.store->contains(key(suffix));
      if (!there.ok()) return there.status();
      if (*there) return o_.store->get(key(suffix), kVerdictGrace);
      if (auto failure = others_failure()) return *failure;
      if (os_.now() >= look) {
        if (auto death = death_of(author)) return *death;
        look = os_.now() + kLookInterval;
      }
      if (os_.now() >= deadline)
        return Status(Cause::kTimeout, key(suffix) + " did not appear in time");
      os_.sleep(pause);
    }
  }

  /// Finds the group's incarnation.
  Status enter() {
    const std::string group = "topocoll/" + o_.name;
    auto ticket = o_.store->add(group + "/join", 1);
    if (!ticket.ok()) return ticket.status();
    auto claims = o_.store->add(fmt::format("{}/claim/{}", group, o_.rank), 1);
    if (!claims.ok()) return claims.status();
    // A rank's k-th start belongs to incarnation k, whatever size it believes in; by then all ranks
    // have started k - 1 times.
    const bool twice = *ticket - 1 < (*claims - 1) * o_.size;
    epoch_ = static_cast<std::uint64_t>(twice ? (*ticket - 1) / o_.size + 1 : *claims);
    base_ = fmt::format("{}/{}", group, epoch_);
    if (twice) {
      return Status(
          Cause::kInvalidArgument,
          fmt::format("rank {} joined group '{}' twice: two jobs share one store prefix, or "
                      "an earlier start of this group broke off half way; use another "
                      "store, port or group name",
                      o_.rank, o_.name));
    }
    return {};
  }

  Status join() {
    if (Status s = enter(); !s.ok()) return s;
    auto name = os_.random_token();
    if (!name.ok()) return name.status();
    auto alive = os_.listen_abstract("topocoll-alive-" + to_hex(*name), 1);
    if (!alive.ok()) return alive.status();
    alive_ = std::move(*alive);
    return o_.store->set(key(fmt::format("hello/{}", o_.rank)),
                         encode({{"size", std::to_string(o_.size)},
                                 {"version", std::string(version())},
                                 {"wire", std::to_string(wire_version())},
                                 {"build", std::string(build_id())},
                                 {"tag", one_line(o_.build_tag)},
                                 {"settings", one_line(o_.settings)},
                                 {"alive", "topocoll-alive-" + to_hex(*name)},
                                 {"network", network_namespace()},
                                 {"host", one_line(host_id_)}}));
  }

  /// The end of a rank that said hello and is still expected, if it came: the kernel gave its
  /// socket's name back. A rank that gave up has closed it too, but left word.
  std::optional<Status> death_of(int rank) {
    const std::string hello = key(fmt::format("hello/{}", rank));
    auto there = o_.store->contains(hello);
    if (!there.ok() || !*there) return std::nullopt;
    auto text = o_.store->get(hello, kVerdictGrace);
    if (!text.ok()) return std::nullopt;
    Fields fields = decode(*text);
    if (fields["alive"].empty() || fields["network"] != network_namespace()) return std::nullopt;
    if (!os_.listen_abstract(fields["alive"], 1).ok()) return std::nullopt;
    if (auto failure = others_failure()) return failure;
    return Status::operation(
        Cause::kPeerDied, {rank}, epoch_, 0, "",
        fmt::format("rank {} died while it was joining group '{}'", rank, o_.name));
  }

  /// Ranks whose hello is not in the store; one request each.
  std::vector<int> missing_ranks() {
    std::vector<int> missing;
    for (int r = 0; r < o_.size; ++r) {
      auto there = o_.store->contains(key(fmt::format("hello/{}", r)));
      if (!there.ok() || !*there) missing.push_back(r);
    }
    return missing;
  }

  /// What to say when waiting has failed: another rank's words stand as they are.
  Status absence(Status status, int awaited) {
    return status.cause() == Cause::kTimeout && !told_ ? missing_error(awaited) : std::move(status);
  }

  Status missing_error(int awaited) {
    std::vector<int> missing = missing_ranks();
    if (missing.empty() && o_.rank != 0) {
      return Status::operation(
          Cause::kTimeout, {0}, epoch_, 0, "",
          fmt::format("rank 0 joined group '{}' but did not hand out its shared "
                      "segment within {} ms: it has died or is stuck",
                      o_.name, o_.timeout.count()));
    }
    if (missing.empty()) missing.push_back(awaited);  // came too late
    return Status::operation(
        Cause::kTimeout, missing, epoch_, 0, "",
        fmt::format("{} of {} ranks did not join group '{}' within {} ms: missing {} {}",
                    missing.size(), o_.size, o_.name, o_.timeout.count(),
                    missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")));
  }

  Status compare(int rank, Fields& theirs, Fields& ours) {
    if (theirs["size"] != ours["size"]) {
      return Status(
          Cause::kInvalidArgument,
          fmt::format("rank {} was started for {} ranks, rank 0 for {}: give all ranks the "
                      "same world size",
                      rank, theirs["size"], ours["size"]));
    }
    for (const char* field : {"wire", "build", "tag"}) {
      if (theirs[field] == ours[field]) continue;
      return Status(
          Cause::kVersion,
          fmt::format("rank {} runs topocoll {} ({} {}), rank 0 runs {} ({} {}): install one "
                      "build on all ranks",
                      rank, theirs["version"], theirs["build"], theirs["tag"], ours["version"],
                      ours["build"], ours["tag"]));
    }
    if (theirs["settings"] != ours["settings"]) {
      return Status(
          Cause::kInvalidArgument,
          fmt::format("rank {} was created with {}, rank 0 with {}: give all ranks the same", rank,
                      theirs["settings"], ours["settings"]));
    }
    if (theirs["host"] != ours["host"]) {
      return Status(Cause::kUnsupported,
                    fmt::format("rank {} is on host {}, rank 0 on host {}: this version moves data "
                                "within one host only (TOPOCOLL_HOST_ID overrides what a host is)",
                                rank, theirs["host"], ours["host"]));
    }
    return {};
  }

  /// Rank 0: hears all hellos, then makes the segment and serves it.
  Result<Assembly> host() {
    Fields ours;
    for (int r = 0; r < o_.size; ++r) {
      auto text = await(fmt::format("hello/{}", r), r, deadline_);
      if (!text.ok()) return absence(text.status(), r);
      Fields theirs = decode(*text);
      if (r == 0) ours = theirs;
      if (Status s = compare(r, theirs, ours); !s.ok()) return s;
    }
    auto segment = shm::Segment::create(os_, segment_options());
    if (!segment.ok()) return segment.status();
    auto name = os_.random_token();
    auto secret = os_.random_token();
    if (!name.ok()) return name.status();
    if (!secret.ok()) return secret.status();
    const std::string socket_name = "topocoll-" + to_hex(*name);
    auto listener = os_.listen_abstract(socket_name, 2 * o_.size);
    if (!listener.ok()) return listener.status();
    if (Status s =
            o_.store->set(key("table"), encode({{"socket", socket_name},
                                                {"secret", to_hex(*secret)},
                                                {"token", to_hex(segment->header().token)}}));
        !s.ok()) {
      return s;
    }
    auto links = serve(*listener, *segment, *secret);
    if (!links.ok()) {
      abandon(*segment, links.status());
      return links.status();
    }
    return Assembly{std::move(*segment), std::move(*links), epoch_, host_id_};
  }

  /// Ends the epoch for the ranks that have the segment already: they no longer look into the
  /// store.
  void abandon(const shm::Segment& segment, const Status& status) {
    auto& reason = segment.block(0).reason;
    const std::size_t n = std::min(status.text().size(), reason.size() - 1);
    std::memcpy(reason.data(), status.text().data(), n);
    reason[n] = '\0';
    shm::Gate gate(segment);
    gate.raise({status.cause(), std::max(0, status.culprit()), 0});
    gate.freeze(os_);
  }

  /// Hands the segment to every rank that proves to know the secret. Others are hung up on.
  Result<std::vector<Monitor::Link>> serve(const Fd& listener, const shm::Segment& segment,
                                           const Token& secret) {
    std::vector<Monitor::Link> links;
    std::vector<bool> served(static_cast<std::size_t>(o_.size), false);
    std::vector<Fd> visitors;  // connected, not yet heard
    TimePoint look = os_.now() + kLookInterval;
    while (links.size() + 1 < static_cast<std::size_t>(o_.size)) {
      std::vector<int> fds{listener.get()};
      for (const Fd& v : visitors) fds.push_back(v.get());
      const auto ready = os_.wait_readable(fds, std::min(deadline_, look));
      // Not only when nobody knocks: strangers may do so all the time.
      if (os_.now() >= std::min(deadline_, look)) {
        if (auto failure = others_failure()) return *failure;
        for (int r = 1; r < o_.size; ++r) {
          if (served[static_cast<std::size_t>(r)]) continue;
          if (auto death = death_of(r)) return *death;
        }
        if (os_.now() >= deadline_) return unserved_error(served);
        look = os_.now() + kLookInterval;
      }
      for (auto i = ready.rbegin(); i != ready.rend(); ++i) {
        if (*i == 0) {
          if (Status s = admit(listener, visitors); !s.ok()) return s;
          continue;
        }
        Fd visitor = std::move(visitors[*i - 1]);
        visitors.erase(visitors.begin() + static_cast<std::ptrdiff_t>(*i - 1));
        if (auto rank = greet(visitor, segment, secret, served)) {
          links.push_back({*rank, std::move(visitor)});
        }
      }
    }
    return links;
  }

  /// Fails only if no connection can be taken any more: those that wait would wait for ever.
  Status admit(const Fd& listener, std::vector<Fd>& visitors) {
    auto visitor = os_.accept(listener, os_.now());
    if (!visitor.ok()) {
      return visitor.status().cause() == Cause::kTimeout ? Status() : visitor.status();
    }
    auto who = os_.peer_credentials(*visitor);
    if (!who.ok() || who->uid != os_.uid()) return {};
    // A rank of the group speaks at once: whoever has been silent longest is a stranger.
    if (visitors.size() >= 2 * static_cast<std::size_t>(o_.size)) visitors.erase(visitors.begin());
    visitors.push_back(std::move(*visitor));
    return {};
  }

  std::optional<int> greet(const Fd& visitor, const shm::Segment& segment, const Token& secret,
                           std::vector<bool>& served) {
    SocketHello hello{};
    auto heard = os_.receive_all(visitor, std::as_writable_bytes(std::span(&hello, 1)),
                                 os_.now() + kHalfHelloTimeout);
    if (!heard.ok() || !equal(hello.secret, secret)) return std::nullopt;
    if (hello.rank < 1 || hello.rank >= o_.size) return std::nullopt;
    const auto r = static_cast<std::size_t>(hello.rank);
    if (served[r]) return std::nullopt;
    const Token& token = segment.header().token;
    if (!os_.send_all(visitor, std::as_bytes(std::span(&token, 1)), segment.fd().get(),
                      os_.now() + kHelloTimeout)
             .ok()) {
      return std::nullopt;
    }
    served[r] = true;
    return hello.rank;
  }

  Status unserved_error(const std::vector<bool>& served) const {
    std::vector<int> missing;
    for (int r = 1; r < o_.size; ++r) {
      if (!served[static_cast<std::size_t>(r)]) missing.push_back(r);
    }
    return Status::operation(Cause::kTimeout, missing, epoch_, 0, "",
                             fmt::format("{} {} joined group '{}' but did not fetch its shared "
                                         "segment within {} ms",
                                         missing.size() == 1 ? "rank" : "ranks",
                                         fmt::join(missing, ", "), o_.name, o_.timeout.count()));
  }

  /// The other ranks: fetch the segment from rank 0.
  Result<Assembly> visit() {
    auto text = await("table", 0, deadline_ + kVerdictGrace);
    if (!text.ok()) return absence(text.status(), 0);
    Fields table = decode(*text);
    const auto secret = parse_token(table["secret"]);
    const auto token = parse_token(table["token"]);
    if (!secret || !token) return Status(Cause::kVersion, "rank 0's table cannot be read");
    const TimePoint until = std::max(deadline_, os_.now() + kHelloTimeout);
    auto socket = os_.connect_abstract(table["socket"], until);
    if (!socket.ok()) {
      return or_verdict(socket.status().annotated(
          fmt::format("rank {} cannot reach rank 0's shared memory (another host or network "
                      "namespace?)",
                      o_.rank)));
    }
    auto who = os_.peer_credentials(*socket);
    if (!who.ok()) return who.status();
    if (who->uid != os_.uid()) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("rank 0 runs as user {}, rank {} as user {}: one user must run all "
                                "ranks of a host",
                                who->uid, o_.rank, os_.uid()));
    }
    const SocketHello hello{*secret, o_.rank};
    if (Status s = os_.send_all(*socket, std::as_bytes(std::span(&hello, 1)), -1, until); !s.ok()) {
      return or_verdict(s.annotated("greeting rank 0"));
    }
    Token echoed;
    auto fd = os_.receive_all(*socket, std::as_writable_bytes(std::span(&echoed, 1)), until);
    if (!fd.ok()) {
      return or_verdict(fd.status().annotated("fetching the shared segment from rank 0"));
    }
    if (!fd->valid()) return Status(Cause::kSystem, "rank 0 sent no shared segment");
    auto segment = shm::Segment::attach(os_, std::move(*fd), o_.size);
    if (!segment.ok()) return segment.status();
    // The token reached this rank through the store, and now through memory: one host.
    if (!equal(segment->header().token, *token) || !equal(echoed, *token)) {
      return Status(Cause::kUnsupported,
                    fmt::format("rank {} does not see rank 0's memory: they are "
                                "not on one host",
                                o_.rank));
    }
    std::vector<Monitor::Link> links;
    links.push_back({0, std::move(*socket)});
    return Assembly{std::move(*segment), std::move(links), epoch_, host_id_};
  }

  Os& os_;
  const BootstrapOptions& o_;
  TimePoint deadline_;
  std::string host_id_;
  Fd alive_;  ///< bound while this rank takes part in the meeting
  std::string base_;
  std::uint64_t epoch_ = 1;
  bool told_ = false;
};

}  // namespace

Result<Assembly> bootstrap(Os& os, const BootstrapOptions& options) {
  return Bootstrap(os, options).run();
}

Status decline(Os& os, const BootstrapOptions& options, Status status) {
  return Bootstrap(os, options).decline(std::move(status));
}

}  // namespace topocoll
