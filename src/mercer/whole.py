"""Files that are whole or not there: written beside their place, and moved there at the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mercer.parts import require


def written(path: str | os.PathLike[str], write: Callable[[Any], Any], *, text: bool = False) -> None:
    """Have a file written by ``write(file)``, all of it or nothing; a device or a pipe is written as it is.

    An error of the system, of a full disk for instance, names the file that was asked for.
    """
    target = Path(path)
    how: dict[str, Any] = {"mode": "w", "newline": "", "encoding": "utf-8"} if text else {"mode": "wb"}
    if target.exists() and not target.is_file() and not target.is_dir():
        with open(target, **how) as file:
            write(file)
        return
    require(target.parent.is_dir(), "the folder of the path", "one that exists", str(target.parent))
    beside = None
    try:
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, **how) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, target)
    except BaseException as fault:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)
        if isinstance(fault, OSError) and fault.errno is not None and fault.filename2 is None:
            fault.filename = str(target)
        raise


def _umask() -> int:
    """What permissions new files go without here; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
