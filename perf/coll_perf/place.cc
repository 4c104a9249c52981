#include "coll_perf/place.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace topocoll::perf {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  bool shell_has_size = false;  ///< the size alone is set where nobody has launched ranks
};

constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", true},  // in salloc's shell
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
};

Result<int> read_int(const Getenv& getenv, const char* name, int least, int most) {
  const char* text = getenv(name);
  if (text == nullptr) return Status(Cause::kInvalidArgument, fmt::format("{} is not set", name));
  const std::string_view view = text;
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < least || value > most) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{}='{}' is not a number from {} to {}", name, text, least, most));
  }
  return value;
}

/// Something that is the same on all ranks of a job, and differs between jobs.
std::string job_id(const Getenv& getenv) {
  std::string id;
  for (const char* name : {"OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE",
                           "SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT"}) {
    if (const char* text = getenv(name)) id += std::string(name) + "=" + text + ";";
  }
  return id;
}

/// As base/hash.h, which is not public.
std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Result<Rendezvous> from_store_variable(const std::string& text, std::string secret) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  const char* end = text.data() + text.size();
  const bool parsed =
      colon != std::string::npos && std::from_chars(text.data() + colon + 1, end, port).ptr == end;
  if (!parsed || colon == 0 || port < 1 || port > 65535) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("TOPOCOLL_STORE='{}' is not host:port", text));
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return Rendezvous{host, static_cast<std::uint16_t>(port), std::move(secret)};
}

/// From here on Linux takes ports for outgoing connections (net.ipv4.ip_local_port_range).
constexpr int kFirstOutgoingPort = 32768;

Result<Rendezvous> read_rendezvous(const Getenv& getenv) {
  const char* given = getenv("TOPOCOLL_JOB_SECRET");
  const std::string id = job_id(getenv);
  const std::string secret = given != nullptr ? given : "job:" + id;
  if (const char* store = getenv("TOPOCOLL_STORE")) return from_store_variable(store, secret);
  const auto own_port = [&id] { return static_cast<std::uint16_t>(16384 + fnv1a(id) % 16000); };
  if (const char* host = getenv("MASTER_ADDR")) {
    auto port = read_int(getenv, "MASTER_PORT", 1, 65535);
    if (!port.ok()) return port.status();
    // torchrun --standalone takes a port of that range, and whoever connects to it may have taken
    // the next.
    const bool safe = *port + 1 < kFirstOutgoingPort;
    return Rendezvous{host, safe ? static_cast<std::uint16_t>(*port + 1) : own_port(), secret};
  }
  if (id.empty()) {
    return Status(
        Cause::kInvalidArgument,
        "the ranks have no place to meet: set TOPOCOLL_STORE=host:port, or MASTER_ADDR and "
        "MASTER_PORT");
  }
  return Rendezvous{"127.0.0.1", own_port(), secret};
}

}  // namespace

Result<Place> read_place(const Getenv& all) {
  // Whoever empties a launcher's variables does not want it; an option of ours must have a value.
  const Getenv getenv = [&all](const char* name) {
    const char* text = all(name);
    const bool empty = text != nullptr && *text == '\0';
    return empty && !std::string_view(name).starts_with("TOPOCOLL_") ? nullptr : text;
  };
  Place place;
  for (const Launcher& launcher : kLaunchers) {
    const bool sized = getenv(launcher.size) != nullptr && !launcher.shell_has_size;
    if (getenv(launcher.rank) == nullptr && !sized) continue;
    auto size = read_int(getenv, launcher.size, 1, 1 << 20);
    if (!size.ok()) return size.status();
    auto rank = read_int(getenv, launcher.rank, 0, *size - 1);
    if (!rank.ok()) return rank.status();
    place.rank = *rank;
    place.size = *size;
    place.local_rank = *rank;
    if (getenv(launcher.local_rank) != nullptr) {
      auto local = read_int(getenv, launcher.local_rank, 0, *size - 1);
      if (!local.ok()) return local.status();
      place.local_rank = *local;
    }
    place.launcher = launcher.name;
    place.variables = fmt::format("{}={} and {}={}", launcher.rank, *rank, launcher.size, *size);
    break;
  }
  if (place.size > 1) {
    auto rendezvous = read_rendezvous(getenv);
    if (!rendezvous.ok()) return rendezvous.status();
    place.rendezvous = std::move(*rendezvous);
  }
  return place;
}

Status peers_absent(const Status& status, const std::string& variables) {
  if (status.cause() != Cause::kTimeout || variables.empty()) return status;
  return status.annotated(fmt::format(
      "not all ranks came that {} promise: start them by that launcher, or --ranks N starts N here",
      variables));
}

Result<Meeting> meet(const Place& place, std::chrono::milliseconds timeout) {
  if (!place.rendezvous) return Meeting{.server = nullptr, .store = make_memory_store()};
  const Rendezvous& at = *place.rendezvous;
  Meeting meeting;
  Status not_served;
  if (place.rank == 0) {
    auto server = serve_tcp_store(at.host, at.port, at.secret);
    if (server.ok()) {
      meeting.server = std::move(*server);
    } else {
      not_served = server.status();
    }
  }
  // Where rank 0 cannot serve, somebody else may: but not for long, if he is not there already.
  const auto limit = not_served.ok() ? timeout : std::min(timeout, std::chrono::milliseconds(2000));
  auto store = connect_tcp_store(at.host, at.port, at.secret, limit);
  if (!store.ok()) {
    return not_served.ok() ? peers_absent(store.status(), place.variables) : not_served;
  }
  meeting.store = std::move(*store);
  return meeting;
}

}  // namespace topocoll::perf
