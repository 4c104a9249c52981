"""Runs a function on several ranks, each in a process of its own, with a deadline.

Processes come from a fork server that has torch loaded already, so that a rank costs a fraction of a second. A
process that does not finish in time is killed, after it has printed where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import faulthandler
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

# Machines may be slow or busy: the factor stretches every deadline.
PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torch.distributed", "numpy", "harness"])
_runs = itertools.count()


@functools.cache
def _server() -> dist.TCPStore:
    """The store of all runs, each of which has a prefix of its own."""
    return dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)


@dataclasses.dataclass
class Outcome:
    """How one rank ended: with a value, an exception, or the exit code of its process."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    exit_code: int | None = None

    def get(self) -> Any:
        assert self.exit_code is None, f"the rank's process ended with code {self.exit_code}"
        assert self.error is None, self.trace
        return self.value


@dataclasses.dataclass
class Job:
    """What init() in a rank needs to join the others."""

    rank: int
    ranks: int
    port: int
    prefix: str
    directory: str
    options: dict[str, Any]

    def store(self, name: str = "store") -> dist.Store:
        client = dist.TCPStore("127.0.0.1", self.port, None, False)
        return dist.PrefixStore(f"{self.prefix}/{name}", client)

    def init(self, **changes: Any) -> None:
        arguments: dict[str, Any] = dict(
            backend="topocoll",
            store=self.store(),
            rank=self.rank,
            world_size=self.ranks,
            timeout=datetime.timedelta(seconds=60 * PATIENCE),
        )
        arguments.update(self.options)
        arguments.update(changes)
        dist.init_process_group(**arguments)


def run(
    ranks: int,
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float = 60,
    init: bool = True,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> list[Outcome]:
    """Calls ``function(job, *arguments)`` on every rank and returns the outcomes in the order of the ranks.

    With ``init`` the default process group exists around the call; ``options`` go to init_process_group.
    """
    port, prefix = _server().port, f"run{next(_runs)}"
    deadline = time.monotonic() + seconds * PATIENCE
    with tempfile.TemporaryDirectory(prefix="topocoll-test-") as directory:
        processes = []
        pipes = []
        for rank in range(ranks):
            job = Job(rank, ranks, port, prefix, directory, options)
            ours, theirs = _context.Pipe(duplex=False)
            process = _context.Process(
                target=_rank_main,
                args=(theirs, job, function, arguments, init, environment or {}, seconds * PATIENCE),
                daemon=True,
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        try:
            return [
                _outcome(pipe, process, deadline)
                for pipe, process in zip(pipes, processes, strict=True)
            ]
        finally:
            for process in processes:
                process.join(max(0.0, min(10.0, deadline - time.monotonic())))
                if process.is_alive():
                    process.kill()
                    process.join()


def results(ranks: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """As run(), for functions that succeed on every rank."""
    return [outcome.get() for outcome in run(ranks, function, *arguments, **options)]


def _outcome(
    pipe: multiprocessing.connection.Connection, process: Any, deadline: float
) -> Outcome:
    try:
        if not pipe.poll(max(0.0, deadline - time.monotonic())):
            text = f"process {process.pid} did not finish in time"
            return Outcome(error=TimeoutError(text), trace=text)  # another rank may know why
        return pipe.recv()
    except EOFError:  # it ended without a word
        process.join(5)
        return Outcome(exit_code=process.exitcode)


def _rank_main(
    pipe: multiprocessing.connection.Connection,
    job: Job,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    init: bool,
    environment: dict[str, str],
    seconds: float,
) -> None:
    faulthandler.dump_traceback_later(max(1.0, seconds - 3.0), exit=False)
    for name in [name for name in os.environ if re.match("TOPOCOLL_|TORCH_|TORCHELASTIC_", name)]:
        del os.environ[name]
    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    outcome = Outcome()
    try:
        if init:
            job.init()
        outcome.value = function(job, *arguments)
        if init and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent wants to know
        outcome = Outcome(error=_picklable(error), trace=f"rank {job.rank}:\n{traceback.format_exc()}")
    faulthandler.cancel_dump_traceback_later()
    pipe.send(outcome)
    pipe.close()


def _picklable(error: BaseException) -> BaseException:
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def torchrun(*arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Two ranks as users start them; ``arguments`` are options of torchrun, a program and the program's own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOPOCOLL_")}
    # A session of its own, so that a launcher that hangs does not leave its ranks behind.
    launcher = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
    )
    try:
        out, err = launcher.communicate(timeout=seconds * PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in _descendants(launcher.pid):
            os.kill(pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(launcher.args, launcher.returncode, out, err)


def _descendants(pid: int) -> list[int]:
    """The process and all below it: torchrun gives each rank a session of its own."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = file.read().split()
    return [pid, *(p for child in children for p in _descendants(int(child)))]


# For use inside of ranks.


@contextlib.contextmanager
def raises(cause: str | type[BaseException], match: str = "") -> Iterator[list[Any]]:
    """Expects a CollectiveError of that cause, or an exception of that type; yields a list that gets it."""
    import topocoll

    expected = topocoll.CollectiveError if isinstance(cause, str) else cause
    caught: list[Any] = []
    try:
        yield caught
    except expected as error:
        if isinstance(cause, str):
            assert error.cause == cause, f"cause {error.cause}, not {cause}: {error}"
        assert re.search(match, str(error)), f"{match!r} is not in {str(error)!r}"
        caught.append(error)
        return
    raise AssertionError(f"nothing was raised where {cause} was expected")


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Returns once the condition holds, of which nobody sends word."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.001)


def backend(group: dist.ProcessGroup | None = None) -> Any:
    """The topocoll backend of a group."""
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def describe(error: Any) -> tuple[Any, ...]:
    """What must be equal on all survivors of a failure."""
    return (type(error).__name__, error.cause, error.culprits, error.epoch, error.seq)


def script_path() -> str:
    return os.path.dirname(os.path.abspath(__file__))


