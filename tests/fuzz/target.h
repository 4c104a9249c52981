// What the fuzzer feeds: a reader of files, with texts to start from.
//
// Thread rule: one thread; a worker process has targets of its own. Failure rule: a broken promise
// ends the process, which the supervisor reports with the input.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/mutate.h"

namespace topocoll::fuzz {

class Target {
 public:
  explicit Target(std::string name) : name_(std::move(name)) {}
  virtual ~Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  virtual std::string make(topocoll::testing::Mutator& mutator) = 0;
  /// Feeds one input; whether it was read, which a fuzzer that tries more than the first check sees
  /// now and then.
  virtual bool run(const std::string& input) = 0;

 private:
  std::string name_;
};

/// Ends the process with a message unless `kept`.
void promise(bool kept, const std::string& what);

/// NCCL's and hwloc's XML, graphs and topologies in JSON, plans; `tests` is the folder of the
/// tests.
std::vector<std::unique_ptr<Target>> text_targets(const std::string& tests);
/// Recorded machines: /sys with files that are changed, gone, or something else. `scratch` is a
/// folder for it alone. Null if no machine can be recorded here.
std::unique_ptr<Target> record_target(const std::string& tests, const std::string& scratch);
/// Targets with a crash, a hang and a large allocation in them, which the fuzzer must find.
std::vector<std::unique_ptr<Target>> faulty_targets();

}  // namespace topocoll::fuzz
