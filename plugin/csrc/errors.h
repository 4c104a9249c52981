// From topocoll's Status to the Python exception topocoll.CollectiveError.
//
// Thread rule: any thread; the functions take the GIL, so a caller must hold no lock that a thread with
// the GIL may wait for.
// Failure rule: if Python cannot make the exception, torch's own DistBackendError carries the text.
#pragma once

#include <exception>
#include <string>

#include "topocoll/status.h"

namespace topocoll::plugin {

/// Makes C++ code of this module that throws a failed Status raise CollectiveError in functions that
/// pybind11 bound, here and in torch. Call once, when the module is loaded.
void register_error_translation();

/// The exception that stands for `status`, to be thrown or to be put into a Future; it may be
/// rethrown any number of times.
std::exception_ptr exception_for(const Status& status);

/// Throws that. Handlers of signals that came meanwhile run first, and what one of them raises
/// (KeyboardInterrupt) takes its place.
[[noreturn]] void raise(const Status& status);

inline void raise_if_failed(const Status& status) {
  if (!status.ok()) [[unlikely]] {
    raise(status);
  }
}

/// Raises kInvalidArgument with "<operation>: <text>" unless `condition` holds.
void require(bool condition, const char* operation, const char* text);
[[noreturn]] void raise_invalid(const char* operation, const std::string& text);

/// Whether a thread may still take the GIL.
bool python_is_alive();

/// Lets go of the GIL for a scope that may block, if this thread has it.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* saved_ = nullptr;
};

}  // namespace topocoll::plugin
