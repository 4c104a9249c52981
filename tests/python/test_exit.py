"""How processes end (row 43), as users' scripts do: each rank is a Python program of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import time

from harness import PATIENCE

PROLOGUE = """
import datetime, os, sys, time
import torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group(
    "topocoll", init_method="file://" + sys.argv[2], rank=rank, world_size=2,
    timeout=datetime.timedelta(seconds=60),
)
"""


def _programs(directory: pathlib.Path, body: str, seconds: float = 90) -> list[subprocess.CompletedProcess[str]]:
    script = directory / "program.py"
    script.write_text(PROLOGUE + textwrap.dedent(body))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOPOCOLL_")}
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(directory / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]
    deadline = time.monotonic() + seconds * PATIENCE
    done = []
    try:
        for process in running:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    return done


def _quiet(done: list[subprocess.CompletedProcess[str]]) -> None:
    for process in done:
        assert process.returncode == 0, process.stderr
        assert process.stderr == "", process.stderr


def test_exit_without_destroy(tmp_path: pathlib.Path) -> None:
    """Row 43: nothing alarming is printed, and no import was needed for the backend."""
    done = _programs(
        tmp_path,
        """
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        assert "topocoll._load" in sys.modules
        print(tensor.tolist())
        """,
    )
    _quiet(done)
    assert [p.stdout.strip() for p in done] == ["[2.0, 2.0, 2.0, 2.0]"] * 2


def test_a_message_that_was_sent_arrives_although_the_sender_ends(tmp_path: pathlib.Path) -> None:
    """Row 43."""
    done = _programs(
        tmp_path,
        """
        if rank == 0:
            dist.isend(torch.arange(3_000_000.0), 1)
            dist.isend(torch.full((10,), 7.0), 1)
        else:
            time.sleep(1.0)
            got = torch.zeros(3_000_000)
            dist.recv(got, 0)
            assert got[-1].item() == 2_999_999.0
            dist.recv(got[:10], 0)
            assert got[:10].eq(7.0).all()
        """,
    )
    _quiet(done)


def test_exit_with_a_collective_in_flight(tmp_path: pathlib.Path) -> None:
    """Row 43: the other rank is late, but comes."""
    done = _programs(
        tmp_path,
        """
        if rank == 1:
            time.sleep(1.0)
        tensor = torch.ones(1000)
        work = dist.all_reduce(tensor, async_op=True)
        if rank == 1:
            work.wait()
            assert tensor.eq(2.0).all()
        """,
    )
    _quiet(done)


def test_destroy_with_work_in_flight(tmp_path: pathlib.Path) -> None:
    """Row 43."""
    done = _programs(
        tmp_path,
        """
        works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(10)]
        future = works[-1].get_future().then(lambda f: f.value()[0].sum().item())
        dist.destroy_process_group()
        assert all(work.is_completed() for work in works)
        print(future.wait())
        """,
    )
    _quiet(done)
    assert [p.stdout.strip() for p in done] == ["200000.0"] * 2


def test_objects_that_outlive_the_group(tmp_path: pathlib.Path) -> None:
    """Row 43: Works and tensors that are freed when the interpreter already shuts down."""
    done = _programs(
        tmp_path,
        """
        import builtins
        builtins.kept = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
        builtins.kept += [work.get_future() for work in builtins.kept]
        builtins.backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        """,
    )
    _quiet(done)


def test_an_exception_in_one_rank_reaches_the_other(tmp_path: pathlib.Path) -> None:
    """Bad input: the other rank raises at once, and says why."""
    started = time.monotonic()
    done = _programs(
        tmp_path,
        """
        dist.barrier()
        if rank == 0:
            raise ValueError("the data are bad")
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            print(error.cause, error.culprits, error)
        """,
    )
    assert time.monotonic() - started < 60 * PATIENCE
    assert done[0].returncode == 1 and "the data are bad" in done[0].stderr
    assert "topocoll" not in done[0].stderr.split("ValueError")[-1]
    assert done[1].returncode == 0, done[1].stderr
    assert done[1].stdout.startswith("aborted (0,)") and "ValueError: the data are bad" in done[1].stdout


def test_ctrl_c_in_one_rank_reaches_the_other(tmp_path: pathlib.Path) -> None:
    done = _programs(
        tmp_path,
        """
        dist.barrier()
        if rank == 0:
            raise KeyboardInterrupt
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            print(error.cause, error.culprits, error)
        """,
    )
    assert done[1].returncode == 0, done[1].stderr
    assert done[1].stdout.startswith("aborted (0,)") and "KeyboardInterrupt" in done[1].stdout


def test_sys_exit_in_one_rank(tmp_path: pathlib.Path) -> None:
    done = _programs(
        tmp_path,
        """
        dist.barrier()
        if rank == 0:
            sys.exit(3)
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            print(error.cause, error.culprits)
        """,
    )
    assert [p.returncode for p in done] == [3, 0], done[1].stderr
    assert done[1].stdout.strip() == "peer_left (0,)"


def test_a_callback_at_exit(tmp_path: pathlib.Path) -> None:
    done = _programs(
        tmp_path,
        """
        import atexit
        atexit.register(lambda: print("leaving"))
        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: time.sleep(0.2))
        """,
    )
    _quiet(done)
    assert [p.stdout.strip() for p in done] == ["leaving"] * 2


def test_a_thread_that_still_waits_at_exit(tmp_path: pathlib.Path) -> None:
    """Row 43: it is woken, and the process ends by itself."""
    done = _programs(
        tmp_path,
        """
        import threading
        dist.barrier()

        def wait_in_vain():
            try:
                dist.recv(torch.ones(1), 1 - rank)
            except dist.DistBackendError:
                pass

        threading.Thread(target=wait_in_vain, daemon=True).start()
        time.sleep(0.3)
        """,
    )
    _quiet(done)


def test_a_child_of_multiprocessing_fork(tmp_path: pathlib.Path) -> None:
    """Row 43: such processes end without Python's own exit functions; what they sent arrives all the same."""
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, time
            import torch, torch.distributed as dist

            def rank_main(rank, path):
                dist.init_process_group("topocoll", init_method="file://" + path, rank=rank, world_size=2)
                if rank == 0:
                    dist.isend(torch.arange(3_000_000.0), 1)
                else:
                    time.sleep(1.0)
                    got = torch.zeros(3_000_000)
                    dist.recv(got, 0)
                    assert got[-1].item() == 2_999_999.0

            context = multiprocessing.get_context("fork")
            ranks = [context.Process(target=rank_main, args=(r, sys.argv[1])) for r in range(2)]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            sys.exit(max(process.exitcode for process in ranks))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store")],
        capture_output=True, text=True, timeout=90 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
