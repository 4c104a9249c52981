// The extension module `topocoll._topocoll_torch_<major>_<minor>`.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "backend.h"
#include "callbacks.h"
#include "errors.h"
#include "precompiled.h"
#include "topocoll/probe.h"
#include "topocoll/topology.h"
#include "topocoll/version.h"

namespace topocoll::plugin {
namespace {

std::optional<CommitMode> parse_commit(const std::optional<std::string>& text) {
  if (!text) {
    return std::nullopt;
  }
  if (*text == "strict") {
    return CommitMode::kStrict;
  }
  if (*text == "chained") {
    return CommitMode::kChained;
  }
  throw py::value_error("commit is \"strict\" or \"chained\", not \"" + *text + "\"");
}

std::optional<std::string> commit_text(const TopocollOptions& options) {
  if (!options.commit) {
    return std::nullopt;
  }
  return *options.commit == CommitMode::kStrict ? "strict" : "chained";
}

py::dict describe(const TopocollBackend& backend) {
  const CommunicatorInfo info = backend.communicator().info();
  py::dict result;
  result["transport"] = info.transport;
  result["host_id"] = info.host_id;
  result["shared_bytes"] = info.shared_bytes;
  result["oversubscribed"] = info.oversubscribed;
  result["flag_latency_ns"] = info.flag_latency_ns;
  result["tuning"] = info.tuning;
  return result;
}

py::object error_or_none(const Status& status) {
  if (status.ok()) {
    return py::none();
  }
  try {
    raise(status);
  } catch (python_error& error) {
    return py::reinterpret_borrow<py::object>(error.value);
  }
}

std::string topology_json() {
  const WithoutGil released;
  const auto found = known_topology();
  raise_if_failed(found.status());
  return to_json(*found);
}

std::string render_topology(const std::string& json) {
  const auto topology = topology_from_json(json);
  raise_if_failed(topology.status());
  return render_text(*topology);
}

void bind_options(py::module_& module) {
  py::class_<TopocollOptions, c10d::Backend::Options, c10::intrusive_ptr<TopocollOptions>>(
      module, "Options",
      "Options for init_process_group(..., pg_options=...) and new_group(..., pg_options=...).\n\n"
      "timeout: limit for creation and for every operation; wins over torch's own timeout "
      "argument.\n"
      "commit: \"strict\" (success is proof that every rank completed the operation) or "
      "\"chained\"\n"
      "    (the proof of an operation arrives with the next one, or with backend.commit());\n"
      "    None leaves it to TOPOCOLL_COMMIT.")
      .def(py::init([](std::optional<std::chrono::milliseconds> timeout,
                       const std::optional<std::string>& commit) {
             return c10::make_intrusive<TopocollOptions>(timeout, parse_commit(commit));
           }),
           py::arg("timeout") = py::none(), py::arg("commit") = py::none())
      .def_property(
          "timeout", [](const TopocollOptions& self) { return self.timeout; },
          [](TopocollOptions& self, std::chrono::milliseconds timeout) {
            self.timeout = timeout;
            self.explicit_timeout = true;
          })
      .def_property("commit", &commit_text,
                    [](TopocollOptions& self, const std::optional<std::string>& text) {
                      self.commit = parse_commit(text);
                    })
      .def_readonly("explicit_timeout", &TopocollOptions::explicit_timeout)
      .def("__repr__",
           [](const py::object& self) {
             return py::str("topocoll.Options(timeout={!r}, commit={!r})")
                 .format(self.attr("timeout"), self.attr("commit"));
           })
      .def("copy",
           [](const TopocollOptions& self) { return c10::make_intrusive<TopocollOptions>(self); });
}

void bind_work(py::module_& module) {
  py::class_<CollectiveWork, c10d::Work, c10::intrusive_ptr<CollectiveWork>>(
      module, "Work", "An operation in flight: torch.distributed.Work with topocoll's errors.")
      .def(
          "exception", [](const CollectiveWork& self) { return error_or_none(self.status()); },
          "The CollectiveError with which the operation failed, or None.")
      .def_property_readonly("seq", &CollectiveWork::getSequencenumber,
                             "Number of the collective within its group, from 1.");
}

void no_memory_pools(const TopocollBackend&, const py::object&) {
  raise(Status(Cause::kUnsupported,
               "topocoll was built without CUDA: it has no use for memory pools"));
}

void bind_backend(py::module_& module) {
  py::class_<TopocollBackend, c10d::Backend, c10::intrusive_ptr<TopocollBackend>>(
      module, "TopocollBackend", "torch.distributed's Backend on top of topocoll.")
      .def(py::init<c10::intrusive_ptr<c10d::Store>, int, int, c10::intrusive_ptr<TopocollOptions>,
                    std::string, std::string>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::arg("name"),
           py::arg("build_tag"))
      .def_property_readonly("options", &TopocollBackend::getBackendOptions)
      .def("commit", &TopocollBackend::commit,
           "Strict proof that every rank completed everything issued so far; all ranks call it.")
      .def_property_readonly(
          "committed", [](const TopocollBackend& self) { return self.communicator().committed(); },
          "Highest sequence number that is known to be committed on every rank.")
      .def_property_readonly(
          "health",
          [](const TopocollBackend& self) { return error_or_none(self.communicator().health()); },
          "None, or the CollectiveError with which the group ended.")
      .def("info", &describe, "How the group moves its bytes.")
      .def("topology_json", &TopocollBackend::topology_json,
           "The machines of all ranks as one graph in JSON; a collective.")
      .def("get_error", &TopocollBackend::getError)
      .def("split", &TopocollBackend::split, py::arg("store"), py::arg("ranks"),
           py::arg("options") = c10::intrusive_ptr<c10d::Backend::Options>())
      .def("merge", &TopocollBackend::merge, py::arg("store"), py::arg("options"), py::arg("rank"),
           py::arg("size"))
      // The next five are called on whatever backend supports splitting or memory pools, although
      // they are not part of torch's own class.
      .def(
          "perform_nocolor_split", [](const TopocollBackend&, const py::object&) {},
          py::arg("device"), "Nothing: ranks outside of a new group take no part in its creation.")
      .def("comm_split_count", &TopocollBackend::splits)
      .def("register_mem_pool", &no_memory_pools)
      .def("deregister_mem_pool", &no_memory_pools)
      .def("_enable_collectives_timing", &TopocollBackend::enableCollectivesTiming);
}

}  // namespace
}  // namespace topocoll::plugin

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace topocoll::plugin;
  py::module_::import("torch._C._distributed_c10d");  // the base classes
  module.doc() =
      "topocoll's binding to one minor version of torch; use the package topocoll instead.";
  register_error_translation();
  bind_options(module);
  bind_work(module);
  bind_backend(module);
  module.def("leave_all", &TopocollBackend::leave_all, py::arg("reason"));
  module.def("stop_callbacks", &stop_callbacks, py::call_guard<py::gil_scoped_release>());
  module.def("topology_json", &topology_json);
  module.def("render_topology", &render_topology, py::arg("json"));
  module.attr("header_version") = TOPOCOLL_VERSION_STRING;
  module.attr("core_version") = std::string(topocoll::version());
  module.attr("core_wire_version") = topocoll::wire_version();
  module.attr("core_build_id") = std::string(topocoll::build_id());
}
