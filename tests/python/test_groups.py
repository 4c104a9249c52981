"""Groups: creating, splitting, ending and creating again (rows 27, 37, 38, 41, 42)."""

from __future__ import annotations

import datetime
import os
import pathlib
import re
import socket
import threading
import time

import pytest
import topocoll
import torch
import torch.distributed as dist
from harness import Job, backend, describe, raises, results, run, until


def _ones(group: dist.ProcessGroup | None = None) -> float:
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def _again(job: Job) -> None:
    store = job.store()
    for _ in range(4):
        job.init(store=store)
        assert _ones() == job.ranks
        assert _ones(dist.new_group(list(range(job.ranks)))) == job.ranks
        dist.destroy_process_group()
        assert not dist.is_initialized()


def test_init_again_on_the_same_store() -> None:
    """Row 27: several times, with groups that get the same names again."""
    results(3, _again, init=False)


def _tcp(job: Job, port_file: str) -> None:
    path = os.path.join(job.directory, port_file)
    if job.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True)
        with open(path + ".new", "w") as file:
            file.write(str(store.port))
        os.rename(path + ".new", path)
    else:
        until(lambda: os.path.exists(path))
        with open(path) as file:
            store = dist.TCPStore("127.0.0.1", int(file.read()), None, False)
    for _ in range(2):
        job.init(store=store)
        assert _ones() == job.ranks
        dist.barrier()
        dist.destroy_process_group()


def test_over_a_tcp_store() -> None:
    results(2, _tcp, "port", init=False)


def _members(job: Job) -> None:
    group = dist.new_group([2, 0])
    if job.rank == 1:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(group) == -1
    else:
        assert dist.get_process_group_ranks(group) == [0, 2]
        assert dist.get_rank(group) == (0 if job.rank == 0 else 1)
        assert _ones(group) == 2
    if job.rank != 1:
        # A member does not wait for ranks that are not members, which come later.
        started = time.monotonic()
    else:
        time.sleep(1.0)
    pair = dist.new_group([0, 2])
    if job.rank != 1:
        assert time.monotonic() - started < 0.9
        assert _ones(pair) == 2
    dist.barrier()
    alone = dist.new_group([job.rank], use_local_synchronization=True)
    assert _ones(alone) == 1


def test_members_and_others() -> None:
    """Row 37."""
    results(3, _members)


def _many(job: Job) -> None:
    groups = [dist.new_group(list(range(job.ranks))) for _ in range(20)]
    works = []
    for k, group in enumerate(groups):
        tensor = torch.full((10,), float(k))
        works.append((k, tensor, dist.all_reduce(tensor, group=group, async_op=True)))
    for k, tensor, work in reversed(works):
        work.wait()
        assert tensor[0].item() == k * job.ranks
    for group in groups:
        dist.destroy_process_group(group)
    assert _ones() == job.ranks


def test_twenty_groups() -> None:
    """Row 41."""
    results(3, _many)


def _listening_ports() -> set[str]:
    """Of this process's TCP sockets, in hexadecimal."""
    links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)]
    ports = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if not os.path.exists(table):
            continue
        with open(table) as file:
            for fields in (line.split() for line in list(file)[1:]):
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:  # 0A: listening
                    ports.add(fields[1].split(":")[1])
    return ports


def _ports(job: Job) -> None:
    assert _ones() == _ones(dist.new_group([0, 1])) == job.ranks
    work = dist.all_reduce(torch.ones(1_000_000), async_op=True)
    assert _listening_ports() == set()
    work.wait()
    with socket.create_server(("127.0.0.1", 0)) as server:  # it would be seen
        assert _listening_ports() == {f"{server.getsockname()[1]:04X}"}


def test_no_port_is_listened_on() -> None:
    """Row 41: so none can collide."""
    results(2, _ports)


def _threads(job: Job) -> None:
    groups = [dist.new_group(list(range(job.ranks))) for _ in range(4)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for k in range(100):
                tensor = torch.full((1 + 500 * index,), float(k))
                dist.all_reduce(tensor, group=groups[index])
                assert tensor[0].item() == k * job.ranks
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    if job.rank == 1:
        threads.reverse()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    # A group whose peer is absent does not hold up another one.
    tensor = torch.ones(1)
    if job.rank == 0:
        waiting = dist.all_reduce(tensor, group=groups[0], async_op=True)
        assert _ones(groups[1]) == job.ranks
        assert not waiting.is_completed()
        dist.barrier()
    else:
        assert _ones(groups[1]) == job.ranks
        dist.barrier()
        waiting = dist.all_reduce(tensor, group=groups[0], async_op=True)
    waiting.wait()
    assert tensor.item() == job.ranks


def test_groups_in_several_threads() -> None:
    """Row 38."""
    results(2, _threads)


class _Watched(dist.Store):
    """A store that notes every key."""

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self.inner = inner
        self.keys: set[str] = set()

    def set(self, key: str, value: str) -> None:
        self.keys.add(key)
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def add(self, key: str, value: int) -> int:
        self.keys.add(key)
        return self.inner.add(key, value)

    def check(self, keys: list[str]) -> bool:
        return self.inner.check(keys)

    def wait(self, keys: list[str], timeout: datetime.timedelta = datetime.timedelta(seconds=60)) -> None:
        self.inner.wait(keys, timeout)


def _keys(job: Job) -> set[str]:

    store = _Watched(dist.PrefixStore("here/", job.store()))
    made = topocoll.TopocollBackend(store, job.rank, job.ranks, topocoll.Options(), "group", "")
    tensor = torch.ones(1)
    made.allreduce([tensor]).wait()
    assert tensor.item() == job.ranks
    made.shutdown()
    return store.keys


def test_keys_stay_below_the_store_that_was_given() -> None:
    """Row 42: and a store that is written in Python will do."""
    for keys in results(2, _keys, init=False):
        assert keys and all("group" in key for key in keys), keys


def _split(job: Job) -> None:
    world = backend()
    halves = [[0, 2], [1, 3]]
    assert world.supports_splitting and world.comm_split_count() == 0
    world.perform_nocolor_split(torch.device("cpu"))
    # Twice with the same store, as torch itself does for a backend that serves two kinds of device.
    for repeat in range(2):
        store = job.store(f"split {job.rank % 2}")
        child = world.split(store, halves[job.rank % 2], None)
        tensor = torch.tensor([float(job.rank)])
        child.allreduce([tensor]).wait()
        assert tensor.item() == (2.0 if job.rank % 2 == 0 else 4.0)
        assert (child.rank(), child.size()) == (job.rank // 2, 2)
        assert child.options.timeout == world.options.timeout
        assert world.comm_split_count() == repeat + 1
    # A rank that is not a member gets nothing and waits for nobody.
    part = world.split(job.store("pair"), [3, 1], None)
    assert (part is None) == (job.rank in (0, 2))
    if part is not None:
        assert part.rank() == (0 if job.rank == 3 else 1)
        tensor = torch.ones(1)
        part.allreduce([tensor]).wait()
        assert tensor.item() == 2
    merged = world.merge(job.store("merged"), None, (job.rank + 1) % 4, 4)
    tensor = torch.ones(1)
    merged.allreduce([tensor]).wait()
    assert tensor.item() == 4 and merged.rank() == (job.rank + 1) % 4


def test_split_and_merge() -> None:
    results(4, _split)


def _both_names(job: Job) -> None:
    assert _ones() == job.ranks
    dist.barrier()
    group = dist.new_group([0, 1], backend="topocoll")
    assert backend(group).name() == "topocoll"
    assert _ones(group) == 2


def test_names_with_devices() -> None:
    """Trap T2: "topocoll" and the forms that name devices."""
    for name in ("topocoll", "cpu:topocoll", "cpu:topocoll,cuda:topocoll"):
        results(2, _both_names, backend=name)


def _options(job: Job) -> None:

    chosen = topocoll.Options(timeout=datetime.timedelta(seconds=33), commit="chained")
    assert repr(chosen) == f"topocoll.Options(timeout={chosen.timeout!r}, commit='chained')"
    group = dist.new_group([0, 1], pg_options=chosen)
    assert backend(group).options.timeout == datetime.timedelta(seconds=33)
    assert backend(group).options.commit == "chained"
    assert backend(group).options.group_name == group.group_name
    assert chosen.group_name == ""  # one object may serve several groups
    assert _ones(group) == 2 and _ones(dist.new_group([0, 1], pg_options=chosen)) == 2
    assert backend().options.timeout.total_seconds() == job.options["timeout"].total_seconds()
    backend(group).set_timeout(datetime.timedelta(seconds=44))
    assert backend(group).options.timeout == datetime.timedelta(seconds=44)
    assert backend().info()["transport"] == "shm"
    with raises(ValueError, "strict.*chained"):
        topocoll.Options(commit="maybe")
    with raises(TypeError, "topocoll.Options"):
        dist.new_group([0, 1], pg_options=torch._C._distributed_c10d.Backend.Options("other"))


def test_options() -> None:
    results(2, _options, timeout=datetime.timedelta(seconds=50))


def _in_files(job: Job, directory: str) -> None:
    for count in (1, 1000, 4 << 20):  # the last is 16 MiB
        tensor = torch.full((count,), job.rank + 1.0)
        dist.all_reduce(tensor)
        assert tensor.eq(3.0).all()
    got = torch.zeros(1)
    dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.ones(1), 1 - job.rank), dist.P2POp(dist.irecv, got, 1 - job.rank)]
    )[0].wait()
    with open("/proc/self/maps") as maps:
        assert re.search(rf"{directory}/topocoll-[0-9a-f]+ \(deleted\)", maps.read())


@pytest.mark.parametrize("directory", ["/dev/shm", None])
def test_shared_memory_in_files(directory: str | None, tmp_path: pathlib.Path) -> None:
    """In the default directory and in another one; no file is left behind."""
    where = pathlib.Path(directory or tmp_path)
    environment = {"TOPOCOLL_SHM_BACKING": "devshm"} | ({} if directory else {"TOPOCOLL_SHM_DIR": str(tmp_path)})
    before = set(where.glob("topocoll-*"))
    results(2, _in_files, str(where), environment=environment)
    until(lambda: not set(where.glob("topocoll-*")) - before)  # another job's may come and go at any time


def _detail(job: Job) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # the environment was read when torch was imported
    job.init()
    assert _ones() == job.ranks
    with raises(RuntimeError, "Detected mismatch between collectives"):
        if job.rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(4))


def test_under_torchs_detailed_debug_mode() -> None:
    results(2, _detail, init=False)


def _ranks_that_join() -> int:
    """Ranks of this machine in the middle of joining a group: each has bound a name meanwhile."""
    with open("/proc/net/unix") as names:
        return sum("@topocoll-alive-" in line for line in names)


def _two_jobs(job: Job) -> None:
    number, rank = divmod(job.rank, 2)
    os.environ["SLURM_JOB_ID"] = str(number)
    if job.rank in (1, 2):
        # One rank of each job comes first: by their order alone, these two would be a group.
        until(lambda: _ranks_that_join() >= 2)
    dist.init_process_group("topocoll", store=job.store(), rank=rank, world_size=2)
    mine = torch.full((1,), 10.0**number)
    dist.all_reduce(mine)
    assert mine.item() == 2 * 10.0**number
    dist.barrier()
    dist.destroy_process_group()


def test_two_jobs_on_one_prefix_do_not_mix() -> None:
    """Bad input: each has its own sums, by the name that their launcher gave them."""
    results(4, _two_jobs, init=False)


def _wrong_size(job: Job) -> tuple[object, ...]:
    with raises("invalid_argument", "rank 1 was started for 3 ranks, rank 0 for 2") as caught:
        dist.init_process_group(
            "topocoll",
            store=job.store(),
            rank=job.rank,
            world_size=2 + job.rank,
            timeout=datetime.timedelta(seconds=5),
        )
    return describe(caught[0])


def test_different_world_sizes() -> None:
    """Bad input: every rank learns of it long before the timeout."""
    started = time.monotonic()
    results(2, _wrong_size, init=False)
    assert time.monotonic() - started < 30


def _missing(job: Job) -> tuple[int, ...]:
    if job.rank in (1, 3):
        return ()
    with raises("timeout", r"\b1\b.*\b3\b") as caught:
        job.init(timeout=datetime.timedelta(seconds=2))
    return caught[0].culprits


def test_ranks_that_never_come_are_listed() -> None:
    """Bad input."""
    assert results(4, _missing, init=False) == [(1, 3), (), (1, 3), ()]


def _unknown_option(job: Job) -> None:
    with raises("invalid_argument", "TOPOCOLL_COMIT.*TOPOCOLL_COMMIT"):
        job.init()


def test_unknown_environment_variable() -> None:
    """Bad input."""
    results(2, _unknown_option, init=False, environment={"TOPOCOLL_COMIT": "strict"})


def _one_bad_option(job: Job) -> None:
    if job.rank == 1:
        os.environ["TOPOCOLL_SPIN_US"] = "-4"
    with raises("invalid_argument", "TOPOCOLL_SPIN_US: '-4'"):
        job.init()


def test_a_bad_option_of_one_rank_is_told_to_the_others() -> None:
    """Bad input: nobody waits for a rank that cannot come."""
    results(3, _one_bad_option, init=False, timeout=datetime.timedelta(seconds=300))


def _builds(job: Job) -> str:

    with raises("version", "torch 2.1[19]") as caught:
        topocoll.TopocollBackend(
            job.store(), job.rank, 2, topocoll.Options(), "g", f"torch 2.1{1 if job.rank else 9}"
        )
    return str(caught[0].cause)


def test_ranks_with_different_builds() -> None:
    """Bad input: compared while the group is made, and said on every rank."""
    assert [o.get() for o in run(2, _builds, init=False)] == ["version", "version"]


def _topology(job: Job) -> tuple[str, str, list[str]]:
    assert _ones() == job.ranks
    work = dist.all_reduce(torch.ones(1), async_op=True)  # still queued, perhaps
    topology = topocoll.topology(dist.group.WORLD)
    after = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    after.wait()
    assert after.seq == backend()._get_sequence_number_for_group(), "numbers went on where the group is"
    alone = topocoll.topology()
    assert {node["id"] for node in alone.nodes} == {node["id"] for node in topology.nodes}
    return topology.json, topology.digest, [n["attributes"]["ranks"] for n in topology.nodes if n["kind"] == "host"]


def test_topology_is_the_same_on_every_rank() -> None:
    all_of_them = results(3, _topology)
    assert len({digest for _, digest, _ in all_of_them}) == 1
    assert len({text for text, _, _ in all_of_them}) == 1
    assert all_of_them[0][2] == ["0-2"]


def _not_ours(job: Job) -> None:
    with raises(TypeError, "needs a group of the backend topocoll"):
        topocoll.topology(dist.new_group([0], backend="gloo"))


def _outside(job: Job) -> None:
    first = dist.new_group([0])
    if job.rank == 0:
        topocoll.topology(first)
        return
    with raises(ValueError, "this rank is not in the group"):
        topocoll.topology(first)


def test_topology_of_a_group_without_this_rank_is_refused() -> None:
    results(2, _outside)


def test_topology_of_another_backend_is_refused() -> None:
    results(1, _not_ours)
