#include "plan_words.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "topocoll/size.h"

namespace topocoll::tools {

Result<CollectiveKind> kind_of(const std::string& collective,
                               std::span<const CollectiveKind> served) {
  if (const auto kind = parse_collective_kind(collective)) return *kind;
  std::string known;
  for (const CollectiveKind kind : served) {
    known += (known.empty() ? "" : ", ") + std::string(name(kind));
  }
  return Status(Cause::kInvalidArgument,
                fmt::format("unknown collective '{}': {}", collective, known));
}

Result<std::vector<std::uint64_t>> parse_sizes(const std::vector<std::string>& texts) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 50;
  std::vector<std::uint64_t> sizes;
  for (const std::string& text : texts) {
    const auto size = parse_size(text);
    if (!size || *size == 0 || *size > kMaxBytes) {
      return Status(
          Cause::kInvalidArgument,
          fmt::format(
              "'{}' is no size: a number of bytes up to 1024T, with k, M, G or T (or KiB, ... TiB)",
              text));
    }
    sizes.push_back(*size);
  }
  if (sizes.empty()) {
    for (int k = 10; k <= 30; k += 2) sizes.push_back(std::uint64_t{1} << k);
  }
  return sizes;
}

std::string exact_size_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits = " KMGT";
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{} {}iB", bytes, kUnits[unit]);
}

std::string bound_text(double gbps, const std::string& fraction) {
  const std::string text = fmt::format("{:.4g}", gbps);
  return fraction == text ? text : fmt::format("{} ({})", text, fraction);
}

nlohmann::ordered_json prediction_json(const PlanPrediction& p) {
  return {{"bytes", p.bytes},
          {"windows", p.windows},
          {"time_us", p.time_us},
          {"algbw_gbps", p.algbw_gbps},
          {"spread_us", p.spread_us},
          {"bottleneck", p.bottleneck},
          {"bottleneck_share", p.bottleneck_share}};
}

std::string prediction_header() {
  return fmt::format("{:>10} {:>8} {:>12} {:>10} {:>10}", "bytes", "windows", "time us",
                     "algbw GB/s", "spread us");
}

std::string prediction_line(const PlanPrediction& p) {
  return fmt::format("{:>10} {:>8} {:>12.2f} {:>10.2f} {:>10.2f}", exact_size_text(p.bytes),
                     p.windows, p.time_us, p.algbw_gbps, p.spread_us);
}

void say_bound_to_machine() {
  constexpr std::string_view kText =
      "topocoll: note: only groups of CPU ranks run plans so far, and this one only on the machine "
      "it is made for: --any-machine lets it run elsewhere\n";
  std::fwrite(kText.data(), 1, kText.size(), stderr);
}

}  // namespace topocoll::tools
