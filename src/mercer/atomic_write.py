"""Files that are whole or not there: written beside their place, and moved there at the end."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mercer.parts import require


def written(path: str | os.PathLike[str], write: Callable[[Any], Any], *, text: bool = False) -> None:
    """Have a file written by ``write(file)``, all of it or nothing; a device or a pipe is written as it is.

    An error of the system, of a full disk for instance, names the file that was asked for.
    """
    target = Path(path)
    how: dict[str, Any] = {"newline": "", "encoding": "utf-8"} if text else {}
    kind = "" if text else "b"
    require_place(path)
    if target.exists() and not target.is_file():
        with open(target, f"w{kind}", **how) as file:
            write(file)
        return
    beside = target.parent / f".mercer-{secrets.token_hex(8)}"  # short, so that long names of files are no trouble
    try:
        with open(beside, f"x{kind}", **how) as file:  # new, with the permissions that new files get
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException as fault:
        beside.unlink(missing_ok=True)
        if isinstance(fault, OSError) and fault.errno is not None:
            fault.filename = str(target)
            if fault.filename2 is not None:  # of the move: the name that nobody has asked for
                del fault.filename2
        raise


def require_place(path: str | os.PathLike[str], name: str = "the path") -> None:
    """Refuse what no file can be written to: no name, a folder, or a name in a folder that does not exist."""
    require(bool(os.fspath(path)), name, "the name of a file", os.fspath(path))
    require(not Path(path).is_dir(), name, "the name of a file", f"the folder {path}")
    folder = Path(path).parent
    require(folder.is_dir(), f"the folder of {name}", "one that exists", str(folder))
