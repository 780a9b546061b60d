"""Objects as plain numbers: what can be written as JSON and arrays, and read again without running any code.

Only records of this package are written: dataclasses such as kernels and maps of inputs, made of numbers, names, arrays
and each other. A file that names anything else is refused.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.parts import require


def plain(thing: Any, arrays: dict[str, np.ndarray]) -> Any:
    """`thing` in lists, dicts, numbers and names; its arrays go into `arrays`. TypeError where that is impossible.

    >>> from mercer.kernels import Gaussian
    >>> arrays = {}
    >>> restored(plain((2.5, Gaussian(3.0)), arrays), arrays)
    (2.5, Gaussian(length_scale=3.0))
    """
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, np.generic):
        return plain(thing.item(), arrays)
    if isinstance(thing, np.ndarray | Tensor) and not (isinstance(thing, np.ndarray) and thing.dtype.hasobject):
        name = f"array.{len(arrays)}"
        arrays[name] = thing.detach().cpu().numpy() if isinstance(thing, Tensor) else thing
        return {"tensor" if isinstance(thing, Tensor) else "array": name}
    if isinstance(thing, list | tuple):
        return {type(thing).__name__: [plain(one, arrays) for one in thing]}
    if isinstance(thing, dict):
        return {"dict": [[plain(key, arrays), plain(value, arrays)] for key, value in thing.items()]}
    cls = type(thing)
    if is_dataclass(cls) and cls.__module__.startswith("mercer."):
        values = {one.name: plain(getattr(thing, one.name), arrays) for one in fields(cls) if one.init}
        return {"record": f"{cls.__module__}:{cls.__qualname__}", "fields": values}
    raise TypeError(f"a {cls.__name__} cannot be written as numbers")


def restored(written: Any, arrays: dict[str, np.ndarray]) -> Any:
    """What `plain` wrote."""
    if not isinstance(written, dict):
        return written
    if "record" in written:
        values = {name: restored(value, arrays) for name, value in written["fields"].items()}
        return _record(written["record"])(**values)
    ((kind, body),) = written.items()
    if kind in ("array", "tensor"):
        return torch.from_numpy(arrays[body].copy()) if kind == "tensor" else arrays[body]
    if kind == "dict":
        return {restored(key, arrays): restored(value, arrays) for key, value in body}
    return {"list": list, "tuple": tuple}[kind](restored(one, arrays) for one in body)


def _record(name: str) -> Any:
    module, _, cls = name.partition(":")
    require(module.startswith("mercer."), "a record of the file", "one of this package", name)
    found = getattr(import_module(module), cls, None)
    require(isinstance(found, type) and is_dataclass(found), "a record of the file", "one of this package", name)
    return found
