"""The training example, as the first command runs it."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from harness import PATIENCE

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "train_digits.py"


def _train(*arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOPOCOLL_")}
    # A session of its own, so that a launcher that hangs does not leave its ranks behind.
    launcher = subprocess.Popen(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            str(EXAMPLE), *arguments,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
    )
    try:
        out, err = launcher.communicate(timeout=120 * PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in _descendants(launcher.pid):
            os.kill(pid, signal.SIGKILL)
        raise
    assert launcher.returncode == 0, out + err
    return out


def _descendants(pid: int) -> list[int]:
    """The process and all below it: torchrun gives each rank a session of its own."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in _descendants(int(child)))]


def _accuracy(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"accuracy ([\d.]+) %", text)]


@pytest.mark.slow
def test_ddp_learns_and_agrees_with_gloo() -> None:
    text = _train("--compare", "gloo")
    assert min(_accuracy(text)) >= 95.0 and len(_accuracy(text)) == 2
    difference = re.search(r"largest difference (\S+)", text)
    assert difference and float(difference.group(1)) <= 1e-6
    assert re.search(r"[\d.]+ steps/s", text) and "loss" in text


@pytest.mark.slow
def test_fsdp2_learns_saves_and_loads(tmp_path: pathlib.Path) -> None:
    weights = tmp_path / "weights.pt"
    first = _train("--parallel", "fsdp2", "--save", str(weights))
    assert _accuracy(first)[0] >= 95.0
    again = _train("--load", str(weights), "--epochs", "1")
    assert _accuracy(again)[0] >= 95.0
