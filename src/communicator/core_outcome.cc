// How a communicator's epoch ends: from what one rank noticed to the Status that all ranks return.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "collectives/cpu/request.h"
#include "communicator/core.h"

namespace topocoll {
namespace {

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string number_or_none(std::uint64_t seq) {
  return seq == 0 ? "none yet" : fmt::format("number {}", seq);
}

}  // namespace

Status Core::settle(const ExecResult& result, std::uint64_t seq) {
  FaultEvent fault{Cause::kInternal, result.rank, seq};
  switch (result.stop) {
    case Stop::kNone:
    case Stop::kFrozen: break;  // somebody else has raised the fault already
    case Stop::kDead: fault.cause = Cause::kPeerDied; break;
    case Stop::kLeft: fault.cause = Cause::kPeerLeft; break;
    case Stop::kTimeout: fault.cause = Cause::kTimeout; break;
    case Stop::kMismatch: fault.cause = Cause::kMismatch; break;
    case Stop::kResource:
      fault.cause = Cause::kResource;
      set_reason(result.status.text());
      break;
  }
  const Status& ended = conclude(fault);
  const std::lock_guard lock(outcome_mutex_);
  // The fault may have come after the last rank had completed this operation: then it stands.
  return outcome_.fate(seq) == Outcome::Fate::kCommitted ? Status() : ended;
}

const Status& Core::conclude(const FaultEvent& fault) {
  {
    const std::lock_guard lock(outcome_mutex_);
    if (concluded_) return final_status_;
    const shm::Fault first = context_.gate.raise({fault.cause, fault.culprit, fault.seq});
    outcome_.on_fault({first.cause, first.culprit, first.seq});
    context_.gate.freeze(os_);
    std::vector<StoppedProgress> progress;
    for (int r = 0; r < size(); ++r) {
      const shm::Progress p = context_.gate.progress(r);
      progress.push_back({p.entered, p.completed});
    }
    final_status_ = make_final_status(outcome_.on_stopped(progress));
    concluded_.store(true, std::memory_order_release);
    log().debug("rank {}: epoch {} ended: {}", own_rank_, assembly_.epoch, final_status_.to_string());
  }
  messages_.fail_all(final_status_);
  const std::lock_guard lock(queue_mutex_);
  queue_changed_.notify_all();
  return final_status_;
}

const Status& Core::adopt_fault() {
  // What the segment holds wins over what is raised here.
  return conclude({Cause::kInternal, -1, sequence()});
}

Status Core::fail_start(const FaultEvent& fault) {
  const Status& ended = conclude(fault);
  return Status::operation(ended.cause(), ended.culprits(), assembly_.epoch, 0, "",
                           "while the group was being made: " + ended.text());
}

Status Core::make_final_status(const Verdict& verdict) const {
  const std::uint64_t seq = verdict.first_aborted();
  std::string operation;
  for (int r = 0; r < size() && operation.empty(); ++r) operation = describe_entered(r, seq);
  return Status::operation(verdict.cause, verdict.culprits, assembly_.epoch, seq,
                           std::move(operation), explain(verdict) + ranks_of_job(verdict.culprits));
}

/// Where the group is a part of a job: who its `ranks` are there.
std::string Core::ranks_of_job(const std::vector<int>& ranks) const {
  if (job_ranks_.empty() || ranks.empty()) return "";
  std::vector<int> there;
  for (const int r : ranks) there.push_back(job_ranks_[static_cast<std::size_t>(r)]);
  return fmt::format(" ({} of this group {} {} of the job)", rank_list(ranks),
                     ranks.size() == 1 ? "is" : "are", rank_list(there));
}

/// The announcement of `rank` for operation `seq`, in words; empty if it made none. Only after the freeze.
std::string Core::describe_entered(int rank, std::uint64_t seq) const {
  const shm::EntryLine& line = assembly_.segment.entry(static_cast<int>(seq & 1), rank);
  if ((line.flag.load() & shm::kSeqMask) != seq) return "";
  return Announcements(context_, seq).call(rank).to_string();
}

std::string Core::explain(const Verdict& verdict) const {
  const std::uint64_t seq = verdict.first_aborted();
  const std::vector<int>& who = verdict.culprits;
  const int first = who.empty() ? -1 : who.front();
  switch (verdict.cause) {
    case Cause::kPeerDied: {
      const int pid = assembly_.segment.block(std::max(0, first)).pid.load();
      return pid == 0 ? fmt::format("rank {} died while it was joining", first)
                      : fmt::format("rank {} (pid {}) died", first, pid);
    }
    case Cause::kPeerLeft:
      return fmt::format("rank {} left the group before it took part", first);
    case Cause::kTimeout:
      if (who.empty()) return "the deadline passed";
      // Where nobody has announced anything, rank 0 may have broken off the meeting, in its own words.
      if (seq == 1 && !reason_of(0).empty()) return reason_of(0);
      if (context_.gate.progress(first).entered >= seq) {
        return fmt::format("{} stopped half way and did not go on in time", rank_list(who));
      }
      return fmt::format("{} did not take part in time (last operation: {})", rank_list(who),
                         number_or_none(context_.gate.progress(first).entered));
    case Cause::kMismatch: {
      std::vector<std::pair<std::string, std::vector<int>>> calls;
      for (int r = 0; r < size(); ++r) {
        std::string call = describe_entered(r, seq);
        const auto known = std::find_if(calls.begin(), calls.end(), [&](auto& c) { return c.first == call; });
        if (known != calls.end()) {
          known->second.push_back(r);
        } else {
          calls.push_back({std::move(call), {r}});
        }
      }
      std::string text;
      for (const auto& [call, ranks] : calls) {
        text += fmt::format("{}{} called {}", text.empty() ? "" : ", ", rank_list(ranks), call);
      }
      if (const auto counts = find_count_mismatch(context_, seq)) {
        return fmt::format("rank {} has {} element{} for rank {}, which expects {} ({})",
                           counts->from, counts->sent, counts->sent == 1 ? "" : "s", counts->to,
                           counts->expected, text);
      }
      if (calls.size() == 1) text += fmt::format(", where rank {} lists other counts", first);
      return text;
    }
    case Cause::kAborted: return fmt::format("rank {} aborted: {}", first, reason_of(first));
    case Cause::kResource:
    case Cause::kSystem: {
      const std::string reason = reason_of(first);
      return reason.empty() ? reason_of(0) : fmt::format("rank {}: {}", first, reason);
    }
    default: return "an internal error; please report it";
  }
}

void Core::set_reason(const std::string& text) {
  auto& reason = assembly_.segment.block(own_rank_).reason;
  const std::size_t n = std::min(text.size(), reason.size() - 1);
  std::memcpy(reason.data(), text.data(), n);
  reason[n] = '\0';
}

std::string Core::reason_of(int rank) const {
  if (rank < 0) return "";
  const auto& reason = assembly_.segment.block(rank).reason;
  return std::string(reason.data(), ::strnlen(reason.data(), reason.size()));
}

void Core::on_link_end(int rank) {
  if (assembly_.segment.block(rank).state.load() == shm::RankState::kLeft) return;
  conclude({Cause::kPeerDied, rank, sequence()});
}

void Core::abort(const std::string& reason) {
  if (fork_generation_ != fork_generation()) return;
  {
    const std::lock_guard lock(outcome_mutex_);
    if (concluded_) return;
    set_reason(reason);
  }
  conclude({Cause::kAborted, own_rank_, sequence()});
}

Status Core::health() {
  if (context_.gate.faulted()) return adopt_fault();
  return usable();
}

}  // namespace topocoll
