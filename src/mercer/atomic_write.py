"""Atomic writes: a file is written beside its target and moved there at the end."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mercer.parts import require


def write_atomically(path: str | os.PathLike[str], write: Callable[[Any], Any], *, text: bool = False) -> None:
    """Write a file by ``write(file)``, completely or not at all; a device or a pipe is written directly.

    An error of the operating system, such as a full disk, names the target, not the temporary file.
    """
    target = Path(path)
    options: dict[str, Any] = {"newline": "", "encoding": "utf-8"} if text else {}
    mode = "" if text else "b"
    require_place(path)
    if target.exists() and not target.is_file():
        with open(target, f"w{mode}", **options) as file:
            write(file)
        return
    temporary = target.parent / f".mercer-{secrets.token_hex(8)}"  # short, so that long names stay within the limit
    try:
        with open(temporary, f"x{mode}", **options) as file:  # new, with the permissions that new files get
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as fault:
        temporary.unlink(missing_ok=True)
        if isinstance(fault, OSError) and fault.errno is not None:
            fault.filename = str(target)
            if fault.filename2 is not None:  # of the move
                del fault.filename2
        raise


def require_place(path: str | os.PathLike[str], name: str = "the path") -> None:
    """Refuse a path to which no file can be written: empty, a folder, or in a folder that does not exist."""
    require(bool(os.fspath(path)), name, "the name of a file", os.fspath(path))
    require(not Path(path).is_dir(), name, "the name of a file", f"the folder {path}")
    folder = Path(path).parent
    require(folder.is_dir(), f"the folder of {name}", "one that exists", str(folder))
