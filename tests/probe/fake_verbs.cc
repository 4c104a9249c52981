// libibverbs without devices: queue pairs go through the states that the InfiniBand Architecture
// Specification asks for, and a read copies what its keys and addresses allow.
#include "probe/fake_verbs.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#undef ibv_query_port
#undef ibv_reg_mr

extern "C" topocoll::testing::FakeVerbs fake_verbs_state;
topocoll::testing::FakeVerbs fake_verbs_state;

namespace {

topocoll::testing::FakeVerbs& state() { return fake_verbs_state; }

struct FakeMemory : ibv_mr {
  int access = 0;
};
struct FakeCompletions : ibv_cq {
  std::vector<ibv_wc> ready;
};
struct FakePair : ibv_qp {
  std::uint32_t peer = 0;
  int gid = -1;
  bool readable = false;
};

std::map<std::uint32_t, FakeMemory*> memories;  // by either key
std::map<std::uint32_t, FakePair*> pairs;
std::uint32_t last_number = 100;

bool fails(const char* function) {
  if (state().hanging == function) state().release.wait();
  if (state().failing != function) return false;
  errno = state().error;
  return true;
}

template <class Object>
Object* made(Object object) {
  ++state().alive;
  return new Object(std::move(object));
}
template <class Object>
int gone(Object* object) {
  --state().alive;
  delete object;
  return 0;
}

/// Whether the region of this key holds the bytes and allows the access.
bool allowed(std::uint32_t key, std::uint64_t address, std::size_t bytes, int access) {
  const auto found = memories.find(key);
  if (found == memories.end()) return false;
  const FakeMemory& m = *found->second;
  const auto start = reinterpret_cast<std::uint64_t>(m.addr);
  return (m.access & access) == access && address >= start && address + bytes <= start + m.length;
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** refused) {
  auto* pair = static_cast<FakePair*>(qp);
  *refused = request;
  if (fails("post_send")) return state().error;
  if (pair->state != IBV_QPS_RTS || request->opcode != IBV_WR_RDMA_READ) return EINVAL;
  if ((request->send_flags & IBV_SEND_SIGNALED) == 0 || request->num_sge != 1) return EINVAL;
  ++state().reads;
  std::this_thread::sleep_for(state().posting);
  if (state().never_completes) return 0;
  ibv_wc done{};
  done.wr_id = request->wr_id;
  done.status = state().status;
  const auto peer = pairs.find(pair->peer);
  const ibv_sge& to = *request->sg_list;
  const auto& from = request->wr.rdma;
  if (state().silent_gids.contains(pair->gid) || peer == pairs.end() ||
      peer->second->state != IBV_QPS_RTS || !peer->second->readable) {
    done.status = IBV_WC_RETRY_EXC_ERR;
  } else if (!allowed(from.rkey, from.remote_addr, to.length, IBV_ACCESS_REMOTE_READ)) {
    done.status = IBV_WC_REM_ACCESS_ERR;
  } else if (!allowed(to.lkey, to.addr, to.length, IBV_ACCESS_LOCAL_WRITE)) {
    done.status = IBV_WC_LOC_PROT_ERR;
  } else if (done.status == IBV_WC_SUCCESS) {
    auto* target = reinterpret_cast<std::uint8_t*>(to.addr);
    std::memcpy(target, reinterpret_cast<const void*>(from.remote_addr), to.length);
    if (state().lies) *target ^= 0x10;
  }
  auto& ready = static_cast<FakeCompletions*>(pair->send_cq)->ready;
  ready.insert(ready.end(), state().twice ? 2 : 1, done);
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* done) {
  auto& ready = static_cast<FakeCompletions*>(cq)->ready;
  const bool failing = fails("poll_cq");
  if (ready.empty() || most < 1) return failing ? -1 : 0;
  *done = ready.front();
  ready.erase(ready.begin());
  return state().polled;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (fails("ibv_get_device_list")) return nullptr;
  const std::size_t n = state().devices.size();
  auto** list = new ibv_device*[n + 1]();
  for (std::size_t i = 0; i < n; ++i) {
    list[i] = new ibv_device();
    state().devices[i].copy(list[i]->name, sizeof list[i]->name - 1);
  }
  ++state().alive;
  *count = state().listed.value_or(static_cast<int>(n));
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  --state().alive;
  for (ibv_device** d = list; *d != nullptr; ++d) delete *d;
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) {
  return state().nameless ? nullptr : device->name;
}

ibv_context* ibv_open_device(ibv_device* /*device*/) {
  if (fails("ibv_open_device")) return nullptr;
  ibv_context context{};
  context.ops.post_send = post_send;
  context.ops.poll_cq = poll_cq;
  return made(context);
}
int ibv_close_device(ibv_context* context) {
  gone(context);
  const std::lock_guard lock(*state().closing);
  ++state().closed;
  return 0;
}

int ibv_query_port(ibv_context* /*context*/, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  if (fails("ibv_query_port")) return state().error;
  if (port != 1) return EINVAL;
  ibv_port_attr found{};
  found.state = state().port_state;
  found.active_mtu = IBV_MTU_1024;
  found.lid = state().lid;
  found.gid_tbl_len = static_cast<int>(state().gids.size());
  found.link_layer = state().ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  std::memcpy(attributes, &found, offsetof(ibv_port_attr, flags));
  return 0;
}

int ibv_query_gid(ibv_context* /*context*/, std::uint8_t /*port*/, int index, ibv_gid* gid) {
  *gid = {};
  gid->raw[15] = state().gids.at(static_cast<std::size_t>(index));
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (fails("ibv_alloc_pd")) return nullptr;
  ibv_pd domain{};
  domain.context = context;
  return made(domain);
}
int ibv_dealloc_pd(ibv_pd* domain) { return gone(domain); }

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  if (fails("ibv_reg_mr")) return nullptr;
  FakeMemory memory{};
  memory.pd = domain;
  memory.addr = address;
  memory.length = bytes;
  memory.access = access;
  memory.lkey = ++last_number;
  memory.rkey = ++last_number;
  auto* region = made(memory);
  memories[region->lkey] = memories[region->rkey] = region;
  return region;
}
int ibv_dereg_mr(ibv_mr* region) {
  memories.erase(region->lkey);
  memories.erase(region->rkey);
  return gone(static_cast<FakeMemory*>(region));
}

ibv_cq* ibv_create_cq(ibv_context* context, int /*entries*/, void* /*user*/,
                      ibv_comp_channel* /*channel*/, int /*vector*/) {
  if (fails("ibv_create_cq")) return nullptr;
  FakeCompletions queue{};
  queue.context = context;
  return made(std::move(queue));
}
int ibv_destroy_cq(ibv_cq* queue) { return gone(static_cast<FakeCompletions*>(queue)); }

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  if (fails("ibv_create_qp")) return nullptr;
  FakePair pair{};
  pair.context = domain->context;
  pair.send_cq = wanted->send_cq;
  pair.state = IBV_QPS_RESET;
  pair.qp_num = ++last_number;
  auto* known = made(pair);
  pairs[known->qp_num] = known;
  return known;
}
int ibv_destroy_qp(ibv_qp* qp) {
  pairs.erase(qp->qp_num);
  return gone(static_cast<FakePair*>(qp));
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  auto* pair = static_cast<FakePair*>(qp);
  const auto has = [mask](int bits) { return mask == (bits | IBV_QP_STATE); };
  const ibv_ah_attr& way = attributes->ah_attr;
  if (fails("ibv_modify_qp")) return state().error;
  switch (attributes->qp_state) {
    case IBV_QPS_RESET:
      if (!has(0)) return EINVAL;
      break;
    case IBV_QPS_INIT:
      if (pair->state != IBV_QPS_RESET || attributes->port_num != 1) return EINVAL;
      if (!has(IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) return EINVAL;
      pair->readable = (attributes->qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0;
      break;
    case IBV_QPS_RTR: {
      if (pair->state != IBV_QPS_INIT || attributes->max_dest_rd_atomic == 0) return EINVAL;
      if (!has(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
        return EINVAL;
      }
      const int gid = way.is_global != 0 ? way.grh.sgid_index : -1;
      if (gid < 0 && (state().ethernet || way.dlid != state().lid)) return EINVAL;
      if (gid >= 0 && way.grh.dgid.raw[15] != state().gids.at(static_cast<std::size_t>(gid))) {
        return EINVAL;
      }
      if (state().refused_gids.contains(gid)) return ETIMEDOUT;
      state().gid_used = pair->gid = gid;
      pair->peer = attributes->dest_qp_num;
      break;
    }
    case IBV_QPS_RTS:
      if (pair->state != IBV_QPS_RTR || attributes->max_rd_atomic == 0) return EINVAL;
      if (!has(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC)) {
        return EINVAL;
      }
      break;
    default:
      return EINVAL;
  }
  pair->state = attributes->qp_state;
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  if (state().speechless) return nullptr;
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another error";
}

}  // extern "C"
