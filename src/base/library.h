// Library: a shared library that is loaded at run time, because nothing of it is needed to build
// and a machine may do without.
//
// Thread rule: any thread. Failure rule: kUnsupported, with the loader's words.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "topocoll/status.h"

namespace topocoll {

class Library {
 public:
  /// As dlopen(), RTLD_LOCAL.
  static Result<Library> open(const std::string& name) {
    Library library(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library.handle_) return library;
    const char* why = ::dlerror();
    return Status(Cause::kUnsupported, why != nullptr ? why : name + " cannot be loaded");
  }

  /// A function of the given type; null if the library lacks it.
  template <class Function>
  [[nodiscard]] Function* find(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_.get(), name));
  }
  /// The same into `function`; the first that is lacking becomes an error in `status`.
  template <class Function>
  void bind(const char* name, Function*& function, Status& status) const {
    function = find<Function>(name);
    if (function != nullptr || !status.ok()) return;
    status = Status(Cause::kUnsupported, std::string("it lacks the function ") + name);
  }

 private:
  struct Close {
    void operator()(void* handle) const { ::dlclose(handle); }
  };
  explicit Library(void* handle) : handle_(handle) {}

  std::unique_ptr<void, Close> handle_;
};

}  // namespace topocoll
