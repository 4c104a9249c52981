// A library that the test builds and the code under test loads. Held open, so that what a test
// tells it stays: `symbol` is the State that it exports, put back to its beginning for each test.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <stdexcept>

namespace topocoll::testing {

template <class State>
class FakeLibrary {
 public:
  FakeLibrary(const char* path, const char* symbol)
      : library_(::dlopen(path, RTLD_NOW | RTLD_LOCAL), &::dlclose) {
    if (library_ != nullptr) state_ = static_cast<State*>(::dlsym(library_.get(), symbol));
    if (state_ == nullptr) throw std::runtime_error(::dlerror());
    *state_ = State();
  }
  State* operator->() const { return state_; }
  State& operator*() const { return *state_; }

 private:
  std::unique_ptr<void, int (*)(void*)> library_;
  State* state_ = nullptr;
};

}  // namespace topocoll::testing
