"""Loads the extension module that was built for the torch at hand, after checking that it fits.

torch has no stable C++ interface for backends: a module that was built for another minor version often
loads well and then calls the wrong functions. So everything is compared before it is used, and each failure is
one line that names both sides and the fix. TOPOCOLL_SKIP_ABI_CHECK=on goes ahead regardless.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing.util
import os
import pathlib
import re
import sys
import threading
import warnings
from types import ModuleType
from typing import Any

_PREFIX = "_topocoll_torch_"
_REBUILD = (
    "rebuild topocoll for it (pip install --no-build-isolation --force-reinstall --no-deps <topocoll's sources>)"
)

_lock = threading.RLock()
_module: ModuleType | None = None
_finalizer: tuple[int, Any] | None = None


def module() -> ModuleType:
    """The extension module; ImportError if none fits."""
    global _module
    if _module is None:
        with _lock:
            if _module is None:
                loaded = _load()
                atexit.register(_leave, loaded)
                _module = loaded
    return _module


def build_tag() -> str:
    """What must be equal on all ranks of a group, apart from topocoll itself."""
    import torch

    return f"torch {_minor(torch.__version__)}"


def _load() -> ModuleType:
    import torch

    skip = os.environ.get("TOPOCOLL_SKIP_ABI_CHECK", "").lower() in ("1", "on", "true", "yes")
    name = _pick(torch.__version__, skip)
    info = importlib.import_module(f".{name}_info", __package__)
    if not skip:
        _check_build(info, torch)
    try:
        # Python opens extension modules with RTLD_LOCAL: topocoll's symbols stay its own.
        loaded = importlib.import_module(f".{name}", __package__)
    except ImportError as error:
        raise ImportError(
            f"topocoll's module for torch {info.TORCH_VERSION} does not load into torch {torch.__version__} "
            f"({error}): {_REBUILD}"
        ) from error
    if not skip:
        _check_core(loaded, info)
        _check_interface(loaded, info, torch)
    return loaded


def _minor(version: str) -> str:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return ".".join(numbers.groups()) if numbers else version


def _built() -> list[str]:
    """Names of the extension modules in this package."""
    here = pathlib.Path(__file__).parent
    return sorted(path.name[: -len("_info.py")] for path in here.glob(f"{_PREFIX}*_info.py"))


def _pick(version: str, skip: bool) -> str:
    wanted = _PREFIX + _minor(version).replace(".", "_")
    built = _built()
    if wanted in built:
        return wanted
    if skip and built:
        return built[-1]
    versions = ", ".join(name[len(_PREFIX) :].replace("_", ".") for name in built) or "no torch at all"
    raise ImportError(f"topocoll was built for torch {versions}, but torch {version} is installed: {_REBUILD}")


def _check_build(info: Any, torch: Any) -> None:
    if _minor(info.TORCH_VERSION) != _minor(torch.__version__):
        raise ImportError(
            f"topocoll was built for torch {info.TORCH_VERSION}, but torch {torch.__version__} is installed: "
            f"{_REBUILD}"
        )
    if info.TORCH_VERSION != torch.__version__:
        warnings.warn(
            f"topocoll was built for torch {info.TORCH_VERSION} and runs in torch {torch.__version__}",
            stacklevel=2,
        )
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        raise ImportError(
            f"topocoll was built with the C++11 ABI of libstdc++, torch {torch.__version__} without it: "
            "install a torch of 2.7 or newer from its own wheels"
        )
    cuda = str(torch.version.cuda or "none")
    if info.CUDA and info.TORCH_CUDA.split(".")[0] != cuda.split(".")[0]:
        raise ImportError(
            f"topocoll was built for CUDA {info.TORCH_CUDA}, but torch {torch.__version__} uses CUDA {cuda}: "
            f"{_REBUILD}"
        )


def _check_core(loaded: ModuleType, info: Any) -> None:
    if not loaded.header_version == loaded.core_version == info.TOPOCOLL_VERSION:
        raise ImportError(
            f"topocoll's torch module is of version {loaded.header_version}, but the libtopocoll.so that it "
            f"found is {loaded.core_version}: reinstall topocoll, and see that LD_LIBRARY_PATH names no other"
        )


def _check_interface(loaded: ModuleType, info: Any, torch: Any) -> None:
    """Calls a backend of one rank through torch's own bindings: a shifted function table fails here."""
    from torch._C._distributed_c10d import Backend

    from .errors import CollectiveError

    try:
        options = loaded.Options()
        probe = loaded.TopocollBackend(None, 0, 1, options, "probe", "")
        base = Backend.Options._timeout.__get__(options)
        tensor = torch.full((1,), 7.0)
        Backend.allreduce(probe, [tensor]).wait()  # type: ignore[attr-defined]  # torch's types have no collectives
        seen: tuple[Any, ...] = (
            Backend.name(probe),
            Backend.size(probe),
            Backend.supports_splitting.__get__(probe),
            base == options.timeout,
            tensor.item(),
        )
        Backend.shutdown(probe)
    except CollectiveError:
        # Not the interface's fault: the group that is about to be made says so, and tells its other ranks.
        return
    except Exception as error:
        seen = (f"{type(error).__name__}: {error}",)
    if seen != ("topocoll", 1, True, True, 7.0):
        raise ImportError(
            f"topocoll was built for torch {info.TORCH_VERSION}, and torch {torch.__version__} does not call it "
            f"as expected (a probe gave {seen}): {_REBUILD}"
        )


def leave_at_exit() -> None:
    """For processes that multiprocessing forked: they end without Python's own exit functions."""
    global _finalizer
    if _finalizer is None or _finalizer[0] != os.getpid():
        finalizer = multiprocessing.util.Finalize(None, _leave, (module(),), exitpriority=1)
        _finalizer = (os.getpid(), finalizer)


def _leave(loaded: ModuleType) -> None:
    """At exit: delivers what was sent, or tells the other ranks why this one ends. May be called twice."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    reason = ""
    if isinstance(error, BaseException):
        try:
            text = " ".join(str(error).split())[:200]
        except Exception:  # a class of the user's that cannot be printed
            text = ""
        reason = f"it ended with {type(error).__name__}" + (f": {text}" if text else "")
    loaded.leave_all(reason)
    loaded.stop_callbacks()
