"""The graph of one or several machines, as :func:`topocoll.topology` returns it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Spread(TypedDict):
    """How sure a measured median is."""

    low: float
    """The lower end of its confidence interval of 95 %."""
    high: float
    best: float
    """The lowest latency, or the highest bandwidth, of all samples."""
    samples: int


class Figure(TypedDict, total=False):
    """A figure by origin; what is unknown is not there."""

    declared: float
    measured: float
    spread: Spread
    """Of ``measured``."""


class PciLink(TypedDict, total=False):
    """The PCIe link above a function, as trained now, and the most that this end can do."""

    speed_gts: float
    width: int
    max_speed_gts: float
    max_width: int


class Node(TypedDict):
    """A thing of a machine."""

    id: str
    kind: str
    """``"host"``, ``"package"``, ``"numa"``, ``"cache"``, ``"core"``, ``"cpu"``, ``"gpu"``, ``"nic"``, ..."""
    cpus: list[int]
    """CPUs at or below it that the process may use (of a job: that any of its ranks there may use)."""
    label: NotRequired[str]
    os_index: NotRequired[int]
    level: NotRequired[int]
    size_bytes: NotRequired[int]
    attributes: NotRequired[dict[str, str]]
    bdf: NotRequired[str]
    uuid: NotRequired[str]
    pci_link: NotRequired[PciLink]


# "from" is a keyword: these two cannot be written as classes.
Edge = TypedDict(
    "Edge",
    {
        "from": str,
        "to": str,
        "kind": str,
        "bandwidth_gbps": "NotRequired[Figure]",
        "latency_ns": "NotRequired[Figure]",
        "upward_gbps": "NotRequired[Figure]",
        "count": "NotRequired[int]",
        "figures": "NotRequired[dict[str, Figure]]",
        "fault": "NotRequired[str]",
    },
)
"""A link, or a measurement (kinds ``"coherence"``, ``"memory"`` and ``"transfer"``).

Of transfers ``figures`` has more than the stores of ``bandwidth_gbps``: ``"loads_gbps"``, ``"copy_engine_gbps"``,
``"duplex_gbps"``, ``"class_gbps"``, ``"loaded_latency_ns"``. ``fault`` says what was wrong with data that went this way.
"""

Direction = TypedDict("Direction", {"from": str, "to": str, "kind": str})
"""One direction of an edge."""


class Group(TypedDict):
    """Directions of edges that share one capacity."""

    id: str
    members: list[Direction]
    bandwidth_gbps: NotRequired[Figure]


class Topology(dict[str, Any]):
    """What machines are made of and what is connected to what: topocoll's native format as a dictionary.

    ``str()`` is the tree that ``topocoll topo show`` prints. docs/topology.md describes all fields.
    """

    def __init__(self, text: str) -> None:
        """Reads the native JSON."""
        super().__init__(json.loads(text))
        self._text = text

    def __str__(self) -> str:
        from . import _load

        return str(_load.module().render_topology(self._text))

    def __reduce__(self) -> tuple[Any, ...]:
        return Topology, (self._text,)

    @property
    def json(self) -> str:
        """The native JSON as it came: the same bytes on every rank of a job."""
        return self._text

    @property
    def digest(self) -> str:
        """SHA-256 of :attr:`json`."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    @property
    def host(self) -> str:
        return str(self["host"])

    @property
    def nodes(self) -> list[Node]:
        return cast("list[Node]", self["nodes"])

    @property
    def edges(self) -> list[Edge]:
        return cast("list[Edge]", self["edges"])

    @property
    def groups(self) -> list[Group]:
        return cast("list[Group]", self.get("groups", []))

    @property
    def notes(self) -> list[str]:
        """What could not be read, and why."""
        return cast("list[str]", self["notes"])


def of_group(group: Any) -> Topology:
    """The machines of all ranks of a process group; a collective of it."""
    import torch
    import torch.distributed as dist

    from . import _load

    if group is dist.GroupMember.NON_GROUP_MEMBER:  # what new_group() returns to the others
        raise ValueError("this rank is not in the group: call topology() on the ranks that are")

    module = _load.module()
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    if not isinstance(backend, module.TopocollBackend):
        raise TypeError(f"topology() needs a group of the backend topocoll, not {type(backend).__name__}")
    return Topology(backend.topology_json())


def of_this_machine() -> Topology:
    from . import _load

    return Topology(_load.module().topology_json())
