"""topocoll: collective communication whose every choice can be seen and checked.

With the package installed, torch knows the backend by its name; no import is needed::

    torch.distributed.init_process_group(backend="topocoll")

What the package adds:

- :class:`CollectiveError`: what a failed operation raises, with who and what failed;
- :class:`Options`: ``pg_options`` for ``init_process_group`` and ``new_group``;
- :func:`topology`: this machine, or those of a group's ranks, as topocoll sees them;
- :func:`version`: the library's version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ._extension import Options, TopocollBackend, Work
    from ._topology import Topology
    from .errors import CollectiveError

__version__: str
__all__ = ["CollectiveError", "Options", "TopocollBackend", "Topology", "Work", "topology", "version"]

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


def topology(group: ProcessGroup | None = None) -> Topology:
    """What machines are made of and what is connected to what.

    Without a group: this machine. With a group of the backend topocoll: the machines of all its ranks as one
    graph, the same bytes on every rank; all ranks call it alike, as a collective. Nothing is measured; what
    ``topocoll topo probe`` has kept is taken over.

    The result is a dictionary in topocoll's native format with ``host``, ``nodes``, ``edges`` and ``notes``, where
    each figure says whether the system declared it or topocoll measured it. ``str()`` makes a tree for people.
    """
    from . import _topology

    return _topology.of_this_machine() if group is None else _topology.of_group(group)


def __getattr__(name: str) -> Any:
    if name == "CollectiveError":
        from .errors import CollectiveError

        return CollectiveError
    if name == "Topology":
        from ._topology import Topology

        return Topology
    if name in ("Options", "TopocollBackend", "Work"):
        from . import _load

        return getattr(_load.module(), name)
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("topocoll")
    raise AttributeError(f"module 'topocoll' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
