"""Starting again: the attempts of an elastic job, groups after a failure (rows 28 and 29)."""

from __future__ import annotations

import datetime
import os
import pathlib
import textwrap

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, raises, results, torchrun
from topocoll import _registration


def _half_way(job: Job) -> None:
    # The attempts of an elastic job share a store in which the last attempt's keys are left. The first attempt is one
    # to which only rank 1 came.
    os.environ["TORCHELASTIC_RUN_ID"] = "run"
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"
    marks = job.store("marks")
    if job.rank == 1:
        child = os.fork()
        if child == 0:
            try:
                with raises("timeout") as caught:
                    job.init(timeout=datetime.timedelta(seconds=1))
                assert caught[0].culprits == (0,)
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        marks.set("failed", "")
    marks.wait(["failed"])
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
    job.init()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == job.ranks
    dist.destroy_process_group()


def test_elastic_restart_after_an_attempt_that_failed_half_way() -> None:
    """Row 28."""
    results(2, _half_way, init=False)


def test_run_and_attempt_tell_groups_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 28: a group's keys differ between jobs and between the attempts of one."""
    for name in ("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE"):  # those in which the tests themselves may run
        monkeypatch.delenv(name, raising=False)
    names = set()
    for run, attempt in (("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", run)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        names.add(_registration._incarnation())
    assert len(names) == 4
    # torch's TCPStore takes keys of 8 KiB at most, and errors show the name.
    for name in ("x" * 10_000, "two\nlines", "y" * 10_000):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        names.add(_registration._incarnation())
        assert len(_registration._incarnation()) < 500
        assert _registration._incarnation().isprintable()
    assert len(names) == 7
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT")
    assert _registration._incarnation() == ""


@pytest.mark.slow
def test_torchrun_starts_again_after_a_rank_was_killed(tmp_path: pathlib.Path) -> None:
    """Row 28: on the agent's store, which has the first attempt's keys."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, signal
            import torch, torch.distributed as dist

            dist.init_process_group("topocoll")
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            assert tensor.item() == 2.0
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            if attempt == "0" and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while attempt == "0":
                dist.all_reduce(tensor)
            if dist.get_rank() == 0:
                print("done in attempt", attempt)
            dist.destroy_process_group()
            """
        )
    )
    done = torchrun("--max-restarts", "1", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "done in attempt 1\n"


def _beside_a_failed_world(job: Job) -> None:
    with raises("mismatch"):
        dist.all_reduce(torch.ones(3 + job.rank))
    for _ in range(2):
        group = dist.new_group([0, 1])
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == job.ranks and backend(group).health is None
    with raises("mismatch"):
        dist.barrier()
    dist.barrier(group)


def test_a_new_group_beside_a_failed_world() -> None:
    """Row 29: the world has failed and was not destroyed; groups that are made then work."""
    results(2, _beside_a_failed_world)
