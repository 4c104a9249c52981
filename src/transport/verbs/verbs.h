// Verbs: libibverbs, loaded at run time because a machine may do without, and owners of what it
// hands out. Posting and polling are libibverbs' inline functions, which need no symbol of it.
//
// Only where its header was there to build with (TOPOCOLL_VERBS).
//
// Thread rule: a device may be used by any thread, all else by one at a time. Failure rule: no
// library or no such device is kUnsupported, what would have to be locked in memory and may not is
// kResource, the rest kSystem; the text names the device and the call. A call that never returns is
// for the caller to leave behind.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/library.h"
#include "topocoll/status.h"

namespace topocoll::verbs {

inline constexpr const char* kLibrary = "libibverbs.so.1";

/// The functions that are used, under their names without "ibv_".
struct Api {
  ibv_device** (*get_device_list)(int*);
  void (*free_device_list)(ibv_device**);
  const char* (*get_device_name)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*close_device)(ibv_context*);
  /// It writes less than an ibv_port_attr of today: clear that first.
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*);
  int (*query_gid)(ibv_context*, std::uint8_t, int, ibv_gid*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int);
  int (*dereg_mr)(ibv_mr*);
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int);
  int (*destroy_cq)(ibv_cq*);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  int (*destroy_qp)(ibv_qp*);
  const char* (*wc_status_str)(ibv_wc_status);
};

template <class Object>
using Owned = std::unique_ptr<Object, int (*)(Object*)>;
using Memory = Owned<ibv_mr>;
using CompletionQueue = Owned<ibv_cq>;
using QueuePair = Owned<ibv_qp>;

/// A protection domain of an RDMA device. What it makes must be gone before it is.
class Device {
 public:
  /// `name` as in /sys/class/infiniband: "mlx5_0".
  static Result<Device> open(const std::string& name, const std::string& library = kLibrary);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Api& api() const { return api_; }

  Result<ibv_port_attr> port(std::uint8_t number) const;
  Result<ibv_gid> gid(std::uint8_t port, int index) const;
  /// Lets the device reach the memory, which stays the caller's, as the flags IBV_ACCESS_... say.
  Result<Memory> register_memory(std::span<std::byte> memory, int access) const;
  Result<CompletionQueue> make_completion_queue(int entries) const;
  /// Of the kind IBV_QPT_RC, for `depth` requests at a time of one piece of memory each.
  Result<QueuePair> make_queue_pair(ibv_cq* completions, std::uint32_t depth) const;
  Status modify(const QueuePair& pair, ibv_qp_attr attributes, int mask) const;
  /// The library's words for a completion's status, and its number.
  [[nodiscard]] std::string words(ibv_wc_status status) const;

 private:
  Device(std::string name, Library library)
      : name_(std::move(name)), library_(std::move(library)) {}
  Status bind();
  /// What errno, or a returned one, says of a call.
  [[nodiscard]] Status failed(const char* call, int error) const;

  std::string name_;
  Library library_;
  Api api_{};
  Owned<ibv_context> context_{nullptr, nullptr};
  Owned<ibv_pd> domain_{nullptr, nullptr};
};

}  // namespace topocoll::verbs
