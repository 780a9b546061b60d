"""Join a group of processes: under `torchrun`, or by the address of a store."""

from __future__ import annotations

import atexit
import os

import torch

from mercer.data.shard import ONE_PROCESS, Group, current_group, set_group
from mercer.distributed.group import ProcessGroup, environment_store, reach_store
from mercer.parts import require

#: Seconds after which a process that does not answer counts as lost.
TIMEOUT = 600.0


def init(timeout: float = TIMEOUT, backend: str = "auto") -> Group:
    """Divide every table that is fitted from now on among the processes of `torchrun`.

    A script that begins with it runs unchanged on one process, and under ``torchrun --nproc-per-node=4 fit.py`` on
    four. Each process passes the same arrays or files and learns from its part of the rows; all end with the same
    model. Rows that only one process has are passed by `own_rows`.

    Parameters
    ----------
    timeout : float, default 600
        Seconds after which a process that does not answer ends the fit of all others.
    backend : "gloo", "nccl" or "auto", default "auto"
        "auto" takes NCCL if every process of this machine has its own GPU.

    Examples
    --------
    >>> import mercer.distributed
    >>> mercer.distributed.init().size  # not under torchrun: one process, and nothing changes
    1
    """
    require(timeout > 0, "timeout", "positive seconds", timeout)
    require(backend in ("auto", "gloo", "nccl"), "backend", "'auto', 'gloo' or 'nccl'", backend)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return ONE_PROCESS
    if current_group() is not ONE_PROCESS:
        return current_group()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpu_each = torch.cuda.is_available() and local_size <= torch.cuda.device_count()
    shared = f"'gloo' where {local_size} processes have {torch.cuda.device_count()} GPUs: NCCL wants one for each"
    require(gpu_each or backend != "nccl", "backend", shared, backend)
    if gpu_each:
        torch.cuda.set_device(local_rank)
    chosen = ("nccl" if gpu_each else "gloo") if backend == "auto" else backend
    group = ProcessGroup(rank, size, environment_store(rank, size, timeout), timeout, chosen)
    atexit.register(group.close)
    set_group(group)
    return group


def join(
    rank: int,
    size: int,
    host: str,
    port: int,
    timeout: float = TIMEOUT,
    backend: str = "gloo",
    secret: bytes | None = None,
) -> ProcessGroup:
    """Join a group whose store (`open_store`) is at this address.

    With a `secret`, the same random bytes for all processes of the group, they refuse messages of other processes.
    """
    return ProcessGroup(rank, size, reach_store(host, port, timeout), timeout, backend, secret)
