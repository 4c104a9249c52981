// Which SIMD targets the kernels are compiled for; include before anything of Highway's.
//
// One baseline, AVX2 and AVX-512: what lies between them differs on machines that are gone, or adds
// nothing that a reduction uses, and every target costs as much build time as the others. The kernels
// keep vectors in small structs, which scalable vectors cannot be members of, so Arm's scalable
// extensions use NEON.
#pragma once

// Checked for addresses, a file of AVX-512 kernels takes gcc minutes; the loops are the same.
#if defined(__SANITIZE_ADDRESS__)
#define TOPOCOLL_UNCHECKED_TARGETS HWY_AVX3
#else
#define TOPOCOLL_UNCHECKED_TARGETS 0
#endif

#define HWY_DISABLED_TARGETS                                                                \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   HWY_RVV | TOPOCOLL_UNCHECKED_TARGETS)
