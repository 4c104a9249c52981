"""Shared set-up: the tests run against the installed package, with a clean environment."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
for name in [name for name in os.environ if name.startswith("TOPOCOLL_")]:
    del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    import topocoll

    topocoll.version()  # a package that does not load would fail every test; fail once instead
