#include "topocoll/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/plain_text.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, 13> kCauseNames = {
    "ok",       "invalid_argument", "mismatch", "peer_died",   "peer_left", "timeout",  "aborted",
    "resource", "system",           "version",  "unsupported", "excluded",  "internal",
};
static_assert(kCauseNames.size() == static_cast<std::size_t>(Cause::kInternal) + 1);

}  // namespace

std::string_view name(Cause cause) {
  const auto index = static_cast<std::size_t>(cause);
  return index < kCauseNames.size() ? kCauseNames[index] : "unknown";
}

Status::Status(Cause cause, std::string text) {
  if (cause == Cause::kOk) return;
  auto rep = std::make_shared<Rep>();
  rep->cause = cause;
  rep->text = plain_text(std::move(text));
  rep_ = std::move(rep);
}

Status Status::operation(Cause cause, std::vector<int> culprits, std::uint64_t epoch,
                         std::uint64_t seq, std::string operation, std::string text) {
  Status status;
  if (cause == Cause::kOk) return status;
  // Ranks learn of culprits in different orders; the record must not depend on that.
  std::sort(culprits.begin(), culprits.end());
  culprits.erase(std::unique(culprits.begin(), culprits.end()), culprits.end());
  auto rep = std::make_shared<Rep>();
  rep->cause = cause;
  rep->culprits = std::move(culprits);
  rep->epoch = epoch;
  rep->seq = seq;
  rep->operation = std::move(operation);
  rep->text = plain_text(std::move(text));
  status.rep_ = std::move(rep);
  return status;
}

const std::vector<int>& Status::culprits() const noexcept {
  static const std::vector<int> none;
  return rep_ ? rep_->culprits : none;
}

int Status::culprit() const noexcept {
  return rep_ && !rep_->culprits.empty() ? rep_->culprits.front() : -1;
}

const std::string& Status::operation() const noexcept {
  static const std::string none;
  return rep_ ? rep_->operation : none;
}

const std::string& Status::text() const noexcept {
  static const std::string none;
  return rep_ ? rep_->text : none;
}

std::string Status::to_string() const {
  if (ok()) return std::string(name(Cause::kOk));
  std::string out(name(rep_->cause));
  if (!rep_->operation.empty() || rep_->seq != 0) {
    fmt::format_to(std::back_inserter(out), ": {}",
                   rep_->operation.empty() ? "before operation" : rep_->operation);
    if (rep_->seq != 0) {
      fmt::format_to(std::back_inserter(out), " number {} of epoch {}", rep_->seq, rep_->epoch);
    }
  }
  if (!rep_->text.empty()) fmt::format_to(std::back_inserter(out), ": {}", rep_->text);
  return out;
}

Status Status::annotated(std::string_view prefix) const {
  if (ok()) return {};
  auto rep = std::make_shared<Rep>(*rep_);
  rep->text = plain_text(rep->text.empty() ? std::string(prefix)
                                           : fmt::format("{}: {}", prefix, rep->text));
  Status status;
  status.rep_ = std::move(rep);
  return status;
}

}  // namespace topocoll
