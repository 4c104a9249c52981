"""What pip installed, and the checks when the module is loaded."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import pathlib
import pickle
import re
import subprocess
import sys
import types
from typing import Any

import pytest
import topocoll
import torch
from harness import torchrun
from topocoll import _load

PACKAGE = pathlib.Path(topocoll.__file__).parent


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TOPOCOLL_")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**kept, **environment}
    )


def test_both_entry_points_are_there() -> None:
    for group, name in (("torch.backends", "_autoload"), ("torch.distributed.backends", "_register")):
        points = [p for p in importlib.metadata.entry_points(group=group) if p.name == "topocoll"]
        assert len(points) == 1 and points[0].value == f"topocoll:{name}"
        assert callable(points[0].load())


def test_torch_knows_the_name_without_an_import() -> None:
    done = _python(
        "import sys, torch, torch.distributed as dist\n"
        "assert 'TOPOCOLL' in dist.Backend._plugins\n"
        "assert dist.Backend.backend_capability['topocoll'] == ['cpu', 'cuda']\n"
        "assert dist.Backend.default_device_backend_map['cpu'] == 'gloo'\n"
        "assert not any(name.startswith('topocoll._topocoll') for name in sys.modules), 'a library was loaded'\n"
        "assert 'libtopocoll' not in open('/proc/self/maps').read()\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_importing_the_package_first_and_without_autoload() -> None:
    for environment in ({}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}):
        done = _python(
            "import topocoll, torch.distributed as dist\n"
            "topocoll._register(); topocoll._register(); topocoll._autoload()\n"
            "assert 'TOPOCOLL' in dist.Backend._plugins\n"
            "print(topocoll.version(), topocoll.__version__)\n",
            **environment,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [topocoll.__version__] * 2


def test_autoload_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    from topocoll import _registration

    def broken() -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(_registration, "register", broken)
    topocoll._autoload()
    with pytest.raises(RuntimeError):
        topocoll._register()


def test_the_public_names() -> None:
    assert set(topocoll.__all__) <= set(dir(topocoll))
    assert issubclass(topocoll.CollectiveError, torch.distributed.DistBackendError)
    assert issubclass(topocoll.Work, torch.distributed.Work)
    assert topocoll.TopocollBackend.__doc__ and topocoll.Options.__doc__
    with pytest.raises(AttributeError, match="nonsense"):
        topocoll.nonsense
    assert (PACKAGE / "py.typed").exists()


def _member(node: ast.stmt) -> tuple[str, ast.stmt] | None:
    if isinstance(node, ast.FunctionDef):
        return node.name, node
    return (node.target.id, node) if isinstance(node, ast.AnnAssign) else None  # the rest is documentation


def _parameters(function: Any) -> list[str]:
    """By the signature with which pybind11 opens a docstring; the brackets in it hold types only."""
    text = function.__doc__.split("(", 1)[1].split(") -> ")[0]
    while (flat := re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", text)) != text:
        text = flat
    return [part.split(":")[0].strip() for part in text.split(",")][1:]


def test_the_declared_types_are_those_of_the_module() -> None:
    """For type checkers: names, what is a property, and parameters."""
    declared = {
        node.name: dict(filter(None, map(_member, node.body)))
        for node in ast.parse((PACKAGE / "_extension.pyi").read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    for name in ("Options", "Work", "TopocollBackend"):
        real = getattr(topocoll, name)
        own = {member for member in vars(real) if not re.match("__|_pybind11", member)}
        assert own <= declared[name].keys(), name
        for member, node in declared[name].items():
            function = isinstance(node, ast.FunctionDef) and not node.decorator_list
            assert isinstance(getattr(real, member), property) != function, f"{name}.{member}"
            if function and not node.args.posonlyargs:
                wanted = [argument.arg for argument in node.args.args][1:]
                assert _parameters(getattr(real, member)) == wanted, f"{name}.{member}"
    info = topocoll.TopocollBackend(None, 0, 1, topocoll.Options(), "types", "").info()
    assert info.keys() == declared["Info"].keys()


def test_topology() -> None:
    topology = topocoll.topology()
    kinds = {node["kind"] for node in topology["nodes"]}
    assert topology["host"] and {"host", "core"} <= kinds
    ids = {node["id"] for node in topology["nodes"]}
    assert all(edge["from"] in ids and edge["to"] in ids for edge in topology["edges"])
    assert isinstance(topology, topocoll.Topology) and isinstance(topology, dict)
    assert topology.nodes == topology["nodes"] and topology.host == topology["host"]
    assert str(topology).startswith(topology.host + "  cpu") and "core" in str(topology)
    again = pickle.loads(pickle.dumps(topology))
    assert again == topology and again.json == topology.json and again.digest == topology.digest


def test_commands_are_installed_and_run_from_anywhere(tmp_path: pathlib.Path) -> None:
    bin_directory = pathlib.Path(sys.executable).parent
    for command in (["topocoll", "--help"], ["coll_perf", "--help"], ["all_reduce_perf", "--help"]):
        done = subprocess.run(
            [str(bin_directory / command[0]), *command[1:]],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_coll_perf_under_torchrun() -> None:
    """Two ranks that torchrun started measure together: one table, with a row of right results for each size."""
    command = str(pathlib.Path(sys.executable).parent / "coll_perf")
    done = torchrun("--no-python", command, "all_reduce", "-b", "8", "-e", "64", "-f", "2", "-n", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^#  Rank +(\d)", done.stdout, re.MULTILINE) == ["0", "1"]
    assert re.findall(r"^ +(\d+) .*\bsum\b", done.stdout, re.MULTILINE) == ["8", "16", "32", "64"]
    assert done.stdout.count("# Out of bounds values : 0 OK\n") == 1


def test_the_library_is_found_beside_the_module_and_keeps_its_symbols_to_itself() -> None:
    topocoll.version()
    maps = pathlib.Path("/proc/self/maps").read_text()
    loaded = {line.split()[-1] for line in maps.splitlines() if "libtopocoll.so" in line}
    assert len(loaded) == 1 and pathlib.Path(loaded.pop()).parent == PACKAGE.resolve()
    library = next(PACKAGE.glob("libtopocoll.so*"))
    listed = subprocess.run(["nm", "-DC", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = [line.split(maxsplit=2)[2] for line in listed.stdout.splitlines() if len(line.split(maxsplit=2)) == 3]
    foreign = [n for n in names if "topocoll" not in n and not n.startswith(("std::", "__gnu", "operator", "_"))]
    assert not foreign, foreign[:10]


def _fake(version: str, **facts: Any) -> Any:
    core = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=facts.pop("abi", True))
    return types.SimpleNamespace(
        __version__=version, _C=core, version=types.SimpleNamespace(cuda=facts.pop("cuda", None)), **facts
    )


def _info(version: str = torch.__version__, **changes: Any) -> Any:
    facts: dict[str, Any] = dict(
        TORCH_VERSION=version, TORCH_CUDA="13.0", TOPOCOLL_VERSION=topocoll.__version__, CUDA=False
    )
    return types.SimpleNamespace(**{**facts, **changes})


def _one_line(error: BaseException, *parts: str) -> None:
    text = str(error)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def test_another_minor_version_of_torch() -> None:
    with pytest.raises(ImportError) as caught:
        _load._pick("9.87.1", skip=False)
    _one_line(caught.value, "9.87.1", _load._minor(torch.__version__), "--no-build-isolation")
    with pytest.raises(ImportError) as caught:
        _load._check_build(_info("2.10.0"), _fake("2.11.0"))
    _one_line(caught.value, "2.10.0", "2.11.0", "--no-build-isolation")


def test_another_patch_version_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="2.11.0.*2.11.1"):
        _load._check_build(_info("2.11.0"), _fake("2.11.1"))


def test_the_old_abi_of_libstdcxx() -> None:
    with pytest.raises(ImportError) as caught:
        _load._check_build(_info("2.11.0"), _fake("2.11.0", abi=False))
    _one_line(caught.value, "C++11 ABI", "2.11.0", "install")


def test_another_cuda() -> None:
    with pytest.raises(ImportError) as caught:
        _load._check_build(_info("2.11.0", CUDA=True), _fake("2.11.0", cuda="12.8"))
    _one_line(caught.value, "13.0", "12.8", "--no-build-isolation")
    _load._check_build(_info("2.11.0", CUDA=False), _fake("2.11.0", cuda="12.8"))  # of no concern without CUDA


def test_a_module_and_a_library_of_different_versions() -> None:
    module = types.SimpleNamespace(header_version="0.1.0", core_version="0.2.0")
    with pytest.raises(ImportError) as caught:
        _load._check_core(module, _info(TOPOCOLL_VERSION="0.1.0"))
    _one_line(caught.value, "0.1.0", "0.2.0", "LD_LIBRARY_PATH")


def test_a_torch_that_calls_the_wrong_functions() -> None:
    real = _load.module()
    _load._check_interface(real, _info(), torch)  # the real one passes

    class Wrong:
        Options = real.Options

        @staticmethod
        def TopocollBackend(*arguments: Any) -> Any:
            raise RuntimeError("Backend gloo does not implement this")

    with pytest.raises(ImportError) as caught:
        _load._check_interface(Wrong, _info(), torch)
    _one_line(caught.value, torch.__version__, "does not implement this", "--no-build-isolation")


def test_a_library_that_does_not_load(tmp_path: pathlib.Path) -> None:
    """A module with missing symbols, as one that was built for another torch has."""
    import shutil

    copy = tmp_path / "topocoll"
    shutil.copytree(PACKAGE, copy)
    module = next(copy.glob("_topocoll_torch_*.so"))
    module.write_bytes(b"not a library")
    done = _python(
        "import topocoll\n"
        "try:\n    topocoll.version()\n"
        "except ImportError as error:\n    print(error)\n",
        PYTHONPATH=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "does not load into torch" in done.stdout and "--no-build-isolation" in done.stdout


def test_the_check_can_be_skipped() -> None:
    code = (
        "import torch\ntorch.__version__ = '9.87.0'\nimport topocoll\n"
        "try:\n    print(topocoll.version())\nexcept ImportError as error:\n    print('refused', error)\n"
    )
    assert _python(code).stdout.startswith("refused topocoll was built for torch")
    assert _python(code, TOPOCOLL_SKIP_ABI_CHECK="on").stdout.strip() == topocoll.__version__


def test_a_failed_load_is_said_when_the_backend_is_asked_for() -> None:
    done = _python(
        "import torch, torch.distributed as dist\n"
        "torch.__version__ = '9.87.0'\n"
        "try:\n"
        "    dist.init_process_group('topocoll', store=dist.HashStore(), rank=0, world_size=1)\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert "9.87.0" in done.stdout, done.stderr
