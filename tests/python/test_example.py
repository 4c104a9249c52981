"""The training example, as the first command runs it."""

from __future__ import annotations

import pathlib
import re

import pytest
from harness import torchrun

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "train_digits.py"


def _train(*arguments: str) -> str:
    done = torchrun(str(EXAMPLE), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
