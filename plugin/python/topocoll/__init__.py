"""topocoll: collective communication whose every choice can be seen and checked.

With the package installed, torch knows the backend by its name; no import is needed::

    torch.distributed.init_process_group(backend="topocoll")

What the package adds:

- :class:`CollectiveError`: what a failed operation raises, with who and what failed;
- :class:`Options`: ``pg_options`` for ``init_process_group`` and ``new_group``;
- :func:`topology`: this machine as topocoll sees it;
- :func:`version`: the library's version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._load import Options, TopocollBackend, Work
    from .errors import CollectiveError

__version__: str
__all__ = ["CollectiveError", "Options", "TopocollBackend", "Work", "topology", "version"]

# torch looks these two up while it is itself being imported: they come first, and nothing in this file
# imports torch or a shared library before it is used.


def _autoload() -> None:
    """Entry point of the group ``torch.backends``: called at the end of ``import torch``."""
    from . import _registration

    _registration.register_quietly()


def _register() -> None:
    """Entry point of the group ``torch.distributed.backends``: called when the name is first used."""
    from . import _registration

    _registration.register()


def version() -> str:
    """The version of the topocoll library that this process has loaded, for example ``"0.1.0"``."""
    from . import _load

    return str(_load.module().core_version)


def topology() -> dict[str, Any]:
    """What this machine is made of and what is connected to what.

    The result is topocoll's native topology format: ``host``, ``nodes``, ``edges`` and ``notes``, where each
    figure says whether the system declared it or topocoll measured it.
    """
    import json

    from . import _load

    return dict(json.loads(_load.module().topology_json()))


def __getattr__(name: str) -> Any:
    if name == "CollectiveError":
        from .errors import CollectiveError

        return CollectiveError
    if name in ("Options", "TopocollBackend", "Work"):
        from . import _load

        return getattr(_load.module(), name)
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("topocoll")
    raise AttributeError(f"module 'topocoll' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
