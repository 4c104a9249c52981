// What a test tells the fake libcuda.so, through the symbol `fake_cuda_state` that it exports.
#pragma once

#include <cstddef>
#include <string>

namespace topocoll::testing {

struct FakeCuda {
  int init = 0;                                    ///< what cuInit returns
  int devices = 2;                                 ///< up to 16
  int multiprocessors = 4;                         ///< of each device
  std::string bus_id;                              ///< of each device; empty: they have their own
  std::string broken;                              ///< a function that fails with 999
  int works = 0;                                   ///< how many calls of it go well before
  int broken_device = -1;                          ///< fails with it alone; -1: all do
  bool peers = true;                               ///< whether devices may use each other's memory
  std::size_t free_bytes = std::size_t{80} << 20;  ///< of each device
  int full_device = -1;                            ///< has no memory left
  int slow_device = -1;                            ///< works at half the rate
  long lies_at_byte = -1;                          ///< where copies between devices change a word
  bool loses_copies = false;                       ///< those between devices
  bool never_ends = false;                         ///< whatever is queued
  double clock = 1;                                ///< times what events measure
  long answer_ns = -1;                             ///< what kernels say they took; -1: the truth

  int alive = 0;  ///< what was handed out and not let go of
  int held = 0;   ///< streams that waited for a word that was not there yet
};

}  // namespace topocoll::testing
