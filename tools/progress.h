// A progress bar on stderr, where somebody looks at it.
//
// Thread rule: one thread. Failure rule: what cannot be written is lost.
#pragma once

#include <string>

namespace topocoll::tools {

/// "measuring [######------] 3 of 6", on one line that is wiped at the end.
std::string progress_line(const std::string& what, int done, int total);

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();
  void show(int done, int total);

 private:
  const std::string what_;
  const bool seen_;  ///< stderr is a terminal
};

}  // namespace topocoll::tools
