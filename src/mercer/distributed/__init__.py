"""Distributed fits: processes that fit one model together, each on its own rows."""

from mercer.distributed.group import LostProcessError, ProcessGroup, UntrustedMessageError, open_store
from mercer.distributed.launch import init, join
from mercer.distributed.rows import OwnRows, own_rows

__all__ = [
    "LostProcessError",
    "OwnRows",
    "ProcessGroup",
    "UntrustedMessageError",
    "init",
    "join",
    "open_store",
    "own_rows",
]
