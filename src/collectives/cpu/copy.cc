#include "collectives/cpu/copy.h"

#include <cstring>

#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/copy.cc"
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "collectives/cpu/copy_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

void copy_simd(void* target, const void* source, std::size_t bytes) {
  copy_vectors<false>(target, source, bytes);
}

void copy_stream(void* target, const void* source, std::size_t bytes) {
  copy_vectors<true>(target, source, bytes);
  hwy::FlushStream();
}

CopyFunction find_vector_copy(CopyKind kind) {
  return kind == CopyKind::kStream ? &copy_stream : &copy_simd;
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {
namespace {

HWY_EXPORT(find_vector_copy);

void copy_memcpy(void* target, const void* source, std::size_t bytes) {
  if (bytes != 0) std::memcpy(target, source, bytes);
}

void copy_string(void* target, const void* source, std::size_t bytes) {
#if defined(__x86_64__) && defined(__GNUC__)
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
#else
  copy_memcpy(target, source, bytes);
#endif
}

}  // namespace

std::string_view name(CopyKind kind) {
  switch (kind) {
    case CopyKind::kMemcpy:
      return "memcpy";
    case CopyKind::kSimd:
      return "simd";
    case CopyKind::kString:
      return "string";
    case CopyKind::kStream:
      return "stream";
  }
  return "?";
}

CopyFunction copy_function(CopyKind kind) {
  switch (kind) {
    case CopyKind::kMemcpy:
      return &copy_memcpy;
    case CopyKind::kString:
      return &copy_string;
    case CopyKind::kSimd:
    case CopyKind::kStream:
      return HWY_DYNAMIC_DISPATCH(find_vector_copy)(kind);
  }
  return &copy_memcpy;
}

}  // namespace topocoll
#endif  // HWY_ONCE
