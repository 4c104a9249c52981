#include "base/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "topocoll/size.h"

namespace topocoll {
namespace {

constexpr std::string_view kPrefix = "TOPOCOLL_";

template <class Enum>
using Choice = std::pair<std::string_view, Enum>;

// The words of each enumeration, found by argument-dependent overload on a null pointer.
constexpr auto choices(const CommitMode*) {
  return std::to_array<Choice<CommitMode>>(
      {{"strict", CommitMode::kStrict}, {"chained", CommitMode::kChained}});
}
constexpr auto choices(const ShmBacking*) {
  return std::to_array<Choice<ShmBacking>>({{"auto", ShmBacking::kAuto},
                                            {"memfd", ShmBacking::kMemfd},
                                            {"devshm", ShmBacking::kDevShm}});
}
constexpr auto choices(const ShmCopy*) {
  return std::to_array<Choice<ShmCopy>>({{"auto", ShmCopy::kAuto},
                                         {"memcpy", ShmCopy::kMemcpy},
                                         {"simd", ShmCopy::kSimd},
                                         {"string", ShmCopy::kString},
                                         {"stream", ShmCopy::kStream}});
}
constexpr auto choices(const AllReduceAlgorithm*) {
  return std::to_array<Choice<AllReduceAlgorithm>>({{"auto", AllReduceAlgorithm::kAuto},
                                                    {"one_shot", AllReduceAlgorithm::kOneShot},
                                                    {"exchange", AllReduceAlgorithm::kExchange},
                                                    {"two_shot", AllReduceAlgorithm::kTwoShot}});
}
constexpr auto choices(const LogLevel*) {
  return std::to_array<Choice<LogLevel>>({{"error", LogLevel::kError},
                                          {"warn", LogLevel::kWarn},
                                          {"info", LogLevel::kInfo},
                                          {"debug", LogLevel::kDebug},
                                          {"trace", LogLevel::kTrace},
                                          {"off", LogLevel::kOff}});
}
constexpr auto choices(const bool*) {
  return std::to_array<Choice<bool>>({{"on", true}, {"off", false}});
}

template <class T>
concept Chosen = requires(const T* type) {
  choices(type);
};
template <class T>
concept Duration =
    std::is_same_v<T, std::chrono::milliseconds> || std::is_same_v<T, std::chrono::microseconds>;
template <class T>
concept Optional = std::is_same_v<T, std::optional<typename T::value_type>>;

template <Chosen T>
std::string_view word(T value) {
  for (const auto& [text, choice] : choices(static_cast<const T*>(nullptr))) {
    if (choice == value) return text;
  }
  return "unknown";
}

std::optional<std::uint64_t> parse_number(std::string_view text, const OptionRule& rule) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < rule.min || value > rule.max) return std::nullopt;
  return value;
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != 0x7f; });
}

bool fits(std::string_view text, const OptionRule& rule) {
  return text.size() >= rule.min && text.size() <= rule.max;
}

// One type of value: parse() reads it, show() writes what parse() reads, describe() says what is
// allowed.
template <class T>
struct Value;

template <Chosen T>
struct Value<T> {
  static std::optional<T> parse(std::string_view text, const OptionRule&) {
    for (const auto& [name, choice] : choices(static_cast<const T*>(nullptr))) {
      if (name == text) return choice;
    }
    return std::nullopt;
  }
  static std::string show(T value, const OptionRule&) { return std::string(word(value)); }
  static std::string describe(const OptionRule&) {
    std::string out;
    for (const auto& entry : choices(static_cast<const T*>(nullptr))) {
      if (!out.empty()) out += '|';
      out += entry.first;
    }
    return out;
  }
};

template <Duration T>
struct Value<T> {
  static std::optional<T> parse(std::string_view text, const OptionRule& rule) {
    const auto number = parse_number(text, rule);
    return number ? std::optional<T>(static_cast<typename T::rep>(*number)) : std::nullopt;
  }
  static std::string show(T value, const OptionRule&) { return fmt::format("{}", value.count()); }
  static std::string describe(const OptionRule& rule) {
    constexpr bool milli = std::is_same_v<T, std::chrono::milliseconds>;
    return fmt::format("{} {}..{}", milli ? "milliseconds" : "microseconds", rule.min, rule.max);
  }
};

template <>
struct Value<std::size_t> {
  static std::optional<std::size_t> parse(std::string_view text, const OptionRule& rule) {
    const auto bytes = parse_size(text);
    if (!bytes || *bytes < rule.min || *bytes > rule.max) return std::nullopt;
    return *bytes;
  }
  static std::string show(std::size_t value, const OptionRule&) { return fmt::format("{}", value); }
  static std::string describe(const OptionRule& rule) {
    return fmt::format("bytes {}..{} (k, M, G and T are powers of 1024)", rule.min, rule.max);
  }
};

template <>
struct Value<std::string> {
  static std::optional<std::string> parse(std::string_view text, const OptionRule& rule) {
    return fits(text, rule) && printable(text) ? std::optional(std::string(text)) : std::nullopt;
  }
  static std::string show(const std::string& value, const OptionRule&) { return value; }
  static std::string describe(const OptionRule& rule) {
    return fmt::format("text of up to {} bytes", rule.max);
  }
};

template <>
struct Value<Secret> {
  static std::optional<Secret> parse(std::string_view text, const OptionRule& rule) {
    return fits(text, rule) ? std::optional(Secret{std::string(text)}) : std::nullopt;
  }
  static std::string show(const Secret& value, const OptionRule&) {
    return value.text.empty() ? "(not set)" : "(set)";
  }
  static std::string describe(const OptionRule& rule) {
    return fmt::format("secret of up to {} bytes", rule.max);
  }
};

template <>
struct Value<Endpoint> {
  static std::optional<Endpoint> parse(std::string_view text, const OptionRule& rule) {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return std::nullopt;
    auto host = text.substr(0, colon);
    const auto port = parse_number(text.substr(colon + 1), rule);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {  // IPv6 address
      host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
      return std::nullopt;
    }
    if (!port || !printable(host)) return std::nullopt;
    return Endpoint{std::string(host), static_cast<std::uint16_t>(*port)};
  }
  static std::string show(const Endpoint& value, const OptionRule&) {
    const bool ipv6 = value.host.find(':') != std::string::npos;
    return ipv6 ? fmt::format("[{}]:{}", value.host, value.port)
                : fmt::format("{}:{}", value.host, value.port);
  }
  static std::string describe(const OptionRule&) { return "host:port"; }
};

template <Optional T>
struct Value<T> {
  using Inner = Value<typename T::value_type>;
  static std::optional<T> parse(std::string_view text, const OptionRule& rule) {
    if (text == rule.absent) return T();
    auto value = Inner::parse(text, rule);
    return value ? std::optional<T>(std::move(value)) : std::nullopt;
  }
  static std::string show(const T& value, const OptionRule& rule) {
    return value ? Inner::show(*value, rule) : std::string(rule.absent);
  }
  static std::string describe(const OptionRule& rule) {
    return fmt::format("{}|{}", rule.absent, Inner::describe(rule));
  }
};

/// Calls f(value, full name, rule, help) for each option of `options`, in the table's order.
template <class Set, class F>
void for_each(Set& options, F f) {
#define OPTION(member, type, fallback, name, rule, help) \
  f(options.member, std::string_view("TOPOCOLL_" name), OptionRule(rule), std::string_view(help));
#include "base/options.def"
#undef OPTION
}

// Levenshtein: insertions, deletions and replacements cost one each.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

Status unknown_option(std::string_view name) {
  std::string_view nearest;
  std::size_t best = std::numeric_limits<std::size_t>::max();
  const Options table;
  for_each(table, [&](const auto&, std::string_view known, const OptionRule&, std::string_view) {
    const std::size_t d = distance(name, known);
    if (d < best) {
      best = d;
      nearest = known;
    }
  });
  // One that has more wrong than right letters says nothing of what was meant.
  const bool alike = 2 * best <= name.size() - std::min(name.size(), kPrefix.size());
  const std::string guess = alike ? fmt::format("; the nearest that exists is {}", nearest) : "";
  return Status(Cause::kInvalidArgument,
                fmt::format("unknown option {}{} (`topocoll options` lists all)", name, guess));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out;
  for (const char c : text.substr(0, kShown)) out += printable({&c, 1}) ? c : '?';
  return fmt::format("'{}'{}", out, text.size() > kShown ? "..." : "");
}

template <class T>
Status bad_value(std::string_view name, std::string_view text, const OptionRule& rule) {
  const std::string shown = std::is_same_v<T, Secret> ? "its value" : in_quotes(text);
  return Status(Cause::kInvalidArgument, fmt::format("{}: {} is not valid; allowed: {}", name,
                                                     shown, Value<T>::describe(rule)));
}

struct Parsed {
  Options options;
  std::vector<std::string_view> given;  // full names, as they stand in the environment
  std::vector<Status> errors;           // in the order of the environment
};

// An empty value means "not set": it is how a shell drops a variable for one command.
Status read_entry(std::string_view entry, Parsed& parsed) {
  const auto equals = entry.find('=');
  const auto given_name = entry.substr(0, equals);
  const auto text = equals == entry.npos ? std::string_view() : entry.substr(equals + 1);
  if (std::find(parsed.given.begin(), parsed.given.end(), given_name) != parsed.given.end()) {
    return {};  // the first of two equal names counts, as with getenv()
  }
  bool known = false;
  Status status;
  for_each(parsed.options,
           [&](auto& value, std::string_view name, const OptionRule& rule, std::string_view) {
             if (name != given_name) return;
             known = true;
             if (text.empty()) return;
             using T = std::remove_reference_t<decltype(value)>;
             if (auto read = Value<T>::parse(text, rule)) {
               value = *std::move(read);
               parsed.given.push_back(given_name);
             } else {
               status = bad_value<T>(name, text, rule);
             }
           });
  return known ? status : unknown_option(given_name);
}

Parsed parse(const char* const* environment) {
  Parsed parsed;
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    if (!entry.starts_with(kPrefix)) continue;
    if (Status s = read_entry(entry, parsed); !s.ok()) parsed.errors.push_back(std::move(s));
  }
  if (!parsed.options.shm_dir.starts_with('/')) {
    parsed.errors.emplace_back(Cause::kInvalidArgument,
                               fmt::format("TOPOCOLL_SHM_DIR: {} is not an absolute path",
                                           in_quotes(parsed.options.shm_dir)));
  }
  return parsed;
}

}  // namespace

std::string_view name(CommitMode mode) { return word(mode); }
std::string_view name(ShmBacking backing) { return word(backing); }
std::string_view name(ShmCopy copy) { return word(copy); }
std::string_view name(AllReduceAlgorithm algorithm) { return word(algorithm); }
std::string_view name(LogLevel level) { return word(level); }

Result<Options> Options::from(const char* const* environment) {
  Parsed parsed = parse(environment);
  if (!parsed.errors.empty()) return parsed.errors.front();
  return std::move(parsed.options);
}

Result<Options> Options::from_environment() { return from(environ); }

OptionTable option_table(const char* const* environment) {
  Parsed parsed = parse(environment);
  std::vector<OptionInfo> rows;
  for_each(parsed.options, [&](const auto& value, std::string_view name, const OptionRule& rule,
                               std::string_view help) {
    using V = Value<std::remove_cvref_t<decltype(value)>>;
    const auto& given = parsed.given;
    const bool set = std::find(given.begin(), given.end(), name) != given.end();
    rows.push_back({.name = std::string(name),
                    .type = V::describe(rule),
                    .value = V::show(value, rule),
                    .fallback = {},
                    .origin = set ? "environment" : "default",
                    .help = std::string(help)});
  });
  const Options defaults;
  std::size_t row = 0;
  for_each(defaults,
           [&](const auto& value, std::string_view, const OptionRule& rule, std::string_view) {
             rows[row++].fallback = Value<std::remove_cvref_t<decltype(value)>>::show(value, rule);
           });
  return {std::move(rows), std::move(parsed.errors)};
}

Result<std::vector<OptionInfo>> list_options(const char* const* environment) {
  OptionTable table = option_table(environment);
  if (!table.errors.empty()) return table.errors.front();
  return std::move(table.rows);
}

OptionTable option_table() { return option_table(environ); }
Result<std::vector<OptionInfo>> list_options() { return list_options(environ); }

}  // namespace topocoll
