#include "errors.h"

#include <utility>

#include "precompiled.h"

namespace topocoll::plugin {
namespace {

// torch's translators restore a python_error as it is: this holds on every way out of C++, from pybind11's
// functions to the autograd engine, which know no other exception that could carry attributes.
class PythonException final : public python_error {
 public:
  PythonException(py::object instance, std::string text) {
    type = py::type::of(instance).release().ptr();
    value = instance.release().ptr();
    message = std::move(text);
  }
};

// Needs the GIL.
py::object error_object(const Status& status) {
  const auto cls = py::module_::import("topocoll.errors").attr("CollectiveError");
  const auto culprit = status.culprit() < 0 ? py::object(py::none()) : py::int_(status.culprit());
  return cls(status.to_string(), py::arg("operation") = status.operation(),
             py::arg("cause") = std::string(name(status.cause())), py::arg("culprit") = culprit,
             py::arg("culprits") = py::tuple(py::cast(status.culprits())),
             py::arg("epoch") = status.epoch(), py::arg("seq") = status.seq());
}

std::exception_ptr plain_exception(const Status& status) {
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, status.to_string()));
}

// Runs the handlers of signals that have come, which Python does in the main thread alone. What one
// raises, as Ctrl-C's does, must not get lost while an exception is made.
void raise_from_signals() {
  if (!python_is_alive()) {
    return;
  }
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    const py::error_already_set raised;
    throw PythonException(raised.value(), raised.what());
  }
}

}  // namespace

bool python_is_alive() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
#else
  return Py_IsInitialized() != 0 && _Py_IsFinalizing() == 0;
#endif
}

WithoutGil::WithoutGil() {
  if (python_is_alive() && PyGILState_Check() == 1) {
    saved_ = PyEval_SaveThread();
  }
}

WithoutGil::~WithoutGil() {
  if (saved_ != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(saved_));
  }
}

void register_error_translation() {
  py::register_exception_translator([](std::exception_ptr exception) {
    try {
      std::rethrow_exception(std::move(exception));
    } catch (PythonException& error) {
      error.restore();
    }
  });
}

std::exception_ptr exception_for(const Status& status) {
  if (!python_is_alive()) {
    return plain_exception(status);
  }
  const py::gil_scoped_acquire gil;
  // Ctrl-C's handler may run in error_object() and raise there: then once more, and Ctrl-C later.
  bool interrupted = false;
  std::exception_ptr made;
  for (int attempt = 0; attempt < 2 && made == nullptr; ++attempt) {
    try {
      made = std::make_exception_ptr(PythonException(error_object(status), status.to_string()));
    } catch (const py::error_already_set& error) {
      interrupted = interrupted || error.matches(PyExc_KeyboardInterrupt);
    }
  }
  if (interrupted) {
    PyErr_SetInterrupt();
  }
  return made != nullptr ? made : plain_exception(status);
}

void raise(const Status& status) {
  raise_from_signals();
  std::rethrow_exception(exception_for(status));
}

void raise_invalid(const char* operation, const std::string& text) {
  raise(Status(Cause::kInvalidArgument, std::string(operation) + ": " + text));
}

void require(bool condition, const char* operation, const char* text) {
  if (!condition) [[unlikely]] {
    raise_invalid(operation, text);
  }
}

}  // namespace topocoll::plugin
