"""Joining a group: under `torchrun`, which says everything by the environment, or by the address of a store."""

from __future__ import annotations

import atexit
import os

import torch

from mercer.data.group import ALONE, Group, current_group, set_group
from mercer.distributed.group import ProcessGroup, environment_store, reach_store
from mercer.parts import require

#: Seconds after which a process that does not answer is taken for lost.
TIMEOUT = 600.0


def init(timeout: float = TIMEOUT, backend: str = "auto") -> Group:
    """Share every table that is fitted from now on among the processes of `torchrun`.

    A script that begins with it runs as it is on one process, and under ``torchrun --nproc-per-node=4 fit.py`` on four:
    each names the same arrays or files and learns from its own rows of them, and all end with the same model. Rows that
    only one process has are given by `own_rows`.

    Parameters
    ----------
    timeout : seconds after which a process that does not answer ends the fit of all others.
    backend : "gloo", "nccl" or "auto", which takes NCCL where every process of this machine has a GPU of its own.

    Examples
    --------
    >>> import mercer.distributed
    >>> mercer.distributed.init().size  # not under torchrun: one process, and nothing changes
    1
    """
    require(timeout > 0, "timeout", "positive seconds", timeout)
    require(backend in ("auto", "gloo", "nccl"), "backend", "'auto', 'gloo' or 'nccl'", backend)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return ALONE
    if current_group() is not ALONE:
        return current_group()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    here, beside = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    own_gpu = torch.cuda.is_available() and beside <= torch.cuda.device_count()
    shared = f"'gloo' where {beside} processes have {torch.cuda.device_count()} GPUs: NCCL wants one for each"
    require(own_gpu or backend != "nccl", "backend", shared, backend)
    if own_gpu:
        torch.cuda.set_device(here)
    chosen = ("nccl" if own_gpu else "gloo") if backend == "auto" else backend
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
    """Join a group whose store (`open_store`) somebody keeps at this address.

    With a `secret`, the same random bytes for all processes of the group, they refuse messages of anybody else.
    """
    return ProcessGroup(rank, size, reach_store(host, port, timeout), timeout, backend, secret)
