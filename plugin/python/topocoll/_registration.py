"""Makes torch.distributed know the name "topocoll". Loads no shared library."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Any

_lock = threading.Lock()


def register() -> None:
    """Registers the backend, once per process."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    with _lock:
        if "TOPOCOLL" in dist.Backend._plugins:
            return
        dist.Backend.register_backend(
            "topocoll", create_backend, extended_api=True, devices=["cpu", "cuda"]
        )


def register_quietly() -> None:
    """As register(), for a caller whom an exception would deprive of all of torch."""
    try:
        register()
    except Exception:  # whatever is wrong will be said when the backend is asked for
        pass


def create_backend(dist_options: Any, options: Any) -> Any:
    """Joins the group that ``dist_options`` describes; torch calls this on every member."""
    from . import _load

    module = _load.module()
    _load.leave_at_exit()
    if options is None:
        options = module.Options()
    elif isinstance(options, module.Options):
        options = options.copy()  # one object may be given to several groups
    else:
        raise TypeError(
            f"pg_options for topocoll must be topocoll.Options, not {type(options).__name__}"
        )
    if not options.explicit_timeout:
        options.timeout = dist_options.timeout
    options.group_name = dist_options.group_id
    options.global_ranks_in_group = dist_options.global_ranks_in_group
    return module.TopocollBackend(
        store=dist_options.store,
        rank=dist_options.group_rank,
        size=dist_options.group_size,
        options=options,
        name=_incarnation() + str(dist_options.group_id),
        build_tag=_load.build_tag(),
    )


def _incarnation() -> str:
    """Tells apart jobs, and the attempts of an elastic job, whose ranks meet on one store and prefix.

    By what the launcher says that is the same on all ranks of a job: steps of a SLURM job may make up one
    group, so they count as one job.
    """
    launchers = ("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE")
    named = next((name for name in launchers if os.environ.get(name)), "")
    names = (named, "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    # With the variables' names, for the errors of ranks that wait for others with another value.
    return "".join(f"{name}={_short(os.environ[name])}/" for name in names if os.environ.get(name))


def _short(value: str) -> str:
    """The value, or its hash if it is nothing for a key or a line of text: torch's TCPStore takes 8 KiB."""
    if len(value) <= 128 and value.isprintable():
        return value
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:16]
