// Which SIMD targets the kernels are compiled for; include before anything of Highway's.
//
// SSSE3 differs from SSE4 on machines that are gone. The kernels keep vectors in small structs, which
// scalable vectors cannot be members of, so Arm's scalable extensions use NEON.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
