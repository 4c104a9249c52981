#ifdef TOPOCOLL_VERBS
#include "transport/verbs/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

// Macros over functions that are called through pointers here.
#undef ibv_query_port
#undef ibv_reg_mr

namespace topocoll::verbs {
namespace {

/// Every text of the library's comes through here: a provider may have none.
std::string_view text(const char* of_library) {
  return of_library == nullptr ? std::string_view() : std::string_view(of_library);
}

}  // namespace

Result<Device> Device::open(const std::string& name, const std::string& library) {
  auto opened = Library::open(library);
  if (!opened.ok()) return opened.status().annotated("no libibverbs");
  Device device(name, std::move(*opened));
  if (Status s = device.bind(); !s.ok()) return s.annotated(library);
  const Api& api = device.api_;
  int count = 0;
  errno = 0;
  ibv_device** list = api.get_device_list(&count);
  if (list == nullptr) return device.failed("ibv_get_device_list", errno);
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> owner(list, api.free_device_list);
  count = std::max(count, 0);
  for (int i = 0; i < count; ++i) {
    if (text(api.get_device_name(list[i])) != name) continue;
    errno = 0;
    device.context_ = {api.open_device(list[i]), api.close_device};
    if (!device.context_) return device.failed("ibv_open_device", errno);
    device.domain_ = {api.alloc_pd(device.context_.get()), api.dealloc_pd};
    if (!device.domain_) return device.failed("ibv_alloc_pd", errno);
    return device;
  }
  return Status(Cause::kUnsupported,
                fmt::format("{}: libibverbs does not list it ({} device{}); is its provider "
                            "installed (Debian: ibverbs-providers) and /dev/infiniband there?",
                            name, count, count == 1 ? "" : "s"));
}

Status Device::bind() {
  Status status;
  const auto find = [&](const char* name, auto*& f) { library_.bind(name, f, status); };
  find("ibv_get_device_list", api_.get_device_list);
  find("ibv_free_device_list", api_.free_device_list);
  find("ibv_get_device_name", api_.get_device_name);
  find("ibv_open_device", api_.open_device);
  find("ibv_close_device", api_.close_device);
  find("ibv_query_port", api_.query_port);
  find("ibv_query_gid", api_.query_gid);
  find("ibv_alloc_pd", api_.alloc_pd);
  find("ibv_dealloc_pd", api_.dealloc_pd);
  find("ibv_reg_mr", api_.reg_mr);
  find("ibv_dereg_mr", api_.dereg_mr);
  find("ibv_create_cq", api_.create_cq);
  find("ibv_destroy_cq", api_.destroy_cq);
  find("ibv_create_qp", api_.create_qp);
  find("ibv_modify_qp", api_.modify_qp);
  find("ibv_destroy_qp", api_.destroy_qp);
  find("ibv_wc_status_str", api_.wc_status_str);
  return status;
}

Status Device::failed(const char* call, int error) const {
  const std::string words =
      error == 0 ? std::string("failed") : std::generic_category().message(error);
  if (error == ENOMEM) {
    return {Cause::kResource, fmt::format("{}: {}: {}; may enough memory be locked (ulimit -l)?",
                                          name_, call, words)};
  }
  return {Cause::kSystem, fmt::format("{}: {}: {}", name_, call, words)};
}

Result<ibv_port_attr> Device::port(std::uint8_t number) const {
  ibv_port_attr attributes{};
  const int error = api_.query_port(context_.get(), number,
                                    reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (error != 0) return failed("ibv_query_port", error);
  return attributes;
}

Result<ibv_gid> Device::gid(std::uint8_t port, int index) const {
  ibv_gid gid{};
  errno = 0;
  if (api_.query_gid(context_.get(), port, index, &gid) != 0) return failed("ibv_query_gid", errno);
  return gid;
}

Result<Memory> Device::register_memory(std::span<std::byte> memory, int access) const {
  errno = 0;
  Memory region(api_.reg_mr(domain_.get(), memory.data(), memory.size(), access), api_.dereg_mr);
  if (!region) return failed("ibv_reg_mr", errno);
  return region;
}

Result<CompletionQueue> Device::make_completion_queue(int entries) const {
  errno = 0;
  CompletionQueue queue(api_.create_cq(context_.get(), entries, nullptr, nullptr, 0),
                        api_.destroy_cq);
  if (!queue) return failed("ibv_create_cq", errno);
  return queue;
}

Result<QueuePair> Device::make_queue_pair(ibv_cq* completions, std::uint32_t depth) const {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.cap.max_send_wr = wanted.cap.max_recv_wr = depth;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  errno = 0;
  QueuePair pair(api_.create_qp(domain_.get(), &wanted), api_.destroy_qp);
  if (!pair) return failed("ibv_create_qp", errno);
  return pair;
}

Status Device::modify(const QueuePair& pair, ibv_qp_attr attributes, int mask) const {
  const int error = api_.modify_qp(pair.get(), &attributes, mask);
  return error == 0 ? Status() : failed("ibv_modify_qp", error);
}

std::string Device::words(ibv_wc_status status) const {
  std::string words(text(api_.wc_status_str(status)));
  // They end up on a terminal.
  std::replace_if(
      words.begin(), words.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return fmt::format("{} (status {})", words.empty() ? "no words for it" : words,
                     static_cast<int>(status));
}

}  // namespace topocoll::verbs
#endif
