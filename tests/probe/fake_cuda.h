// What a test tells the fake libcuda.so, through the symbol `fake_cuda_state` that it exports.
#pragma once

#include <cstddef>
#include <string>

namespace topocoll::testing {

struct FakeCuda {
  int init = 0;                                    ///< what cuInit returns
  int devices = 2;                                 ///< each of 4 multiprocessors
  std::string broken;                              ///< a function that fails with 999
  bool peers = true;                               ///< whether devices may use each other's memory
  std::size_t free_bytes = std::size_t{80} << 20;  ///< of each device
  int full_device = -1;                            ///< has no memory left
  int slow_device = -1;                            ///< works at half the rate
  long lies_at_byte = -1;                          ///< where copies between devices change a word
  bool loses_copies = false;                       ///< those between devices
  bool never_ends = false;                         ///< whatever is queued

  int alive = 0;  ///< what was handed out and not let go of
  int held = 0;   ///< streams that waited for a word that was not there yet
};

}  // namespace topocoll::testing
