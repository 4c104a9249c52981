// What the fuzzer must find, so that a fuzzer that finds nothing is known to look.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "fuzz/target.h"

namespace topocoll::fuzz {
namespace {

class FaultyTarget : public Target {
 public:
  FaultyTarget(std::string name, std::function<void()> fault)
      : Target(std::move(name)), fault_(std::move(fault)) {}

  std::string make(topocoll::testing::Mutator& mutator) override {
    return mutator.mutated("{\"a\": 1, \"b\": [2, 3]}", "{}");
  }
  /// Some inputs are harmless.
  bool run(const std::string& input) override {
    if (input.size() % 7 == 3) fault_();
    return true;
  }

 private:
  std::function<void()> fault_;
};

/// Touches what it allocates, or it would cost nothing.
void allocate(std::size_t bytes) {
  constexpr std::size_t kPart = std::size_t{16} << 20;
  std::vector<std::vector<char>> parts;
  for (std::size_t done = 0; done < bytes; done += kPart) parts.emplace_back(kPart, 'x');
}

/// As a reader does that tries its input in a child first, and reports its end as an error.
void in_child(const std::function<void()>& fault) {
  const pid_t child = ::fork();
  if (child == 0) {
    fault();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

}  // namespace

std::vector<std::unique_ptr<Target>> faulty_targets() {
  constexpr std::size_t kMuch = std::size_t{3} << 30;
  std::vector<std::unique_ptr<Target>> result;
  const auto add = [&](const char* name, std::function<void()> fault) {
    result.push_back(std::make_unique<FaultyTarget>(name, std::move(fault)));
  };
  add("crash", [] { promise(false, "this is kept"); });
  add("hang", [] { ::pause(); });
  add("memory", [] { allocate(kMuch); });
  add("memory-in-child", [] { in_child([] { allocate(kMuch / 2); }); });
  return result;
}

}  // namespace topocoll::fuzz
