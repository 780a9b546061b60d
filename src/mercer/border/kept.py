"""What a fit keeps is made of NumPy arrays: pickle, joblib, skops and model files then need no torch, and no GPU.

Where a dataclass of a model says `Tensor`, that is so while the model is fitted; its methods take arrays as well.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def on_host(value: Any) -> Any:
    """The same with arrays in place of tensors, inside lists, tuples, dicts and dataclasses too.

    What holds no tensor is returned as it is, not as a copy.

    >>> import torch
    >>> from mercer.border.kept import on_host
    >>> on_host({"weights": [torch.ones(2)], "why": "converged"})
    {'weights': [array([1., 1.], dtype=float32)], 'why': 'converged'}
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().numpy()  # in another order, products are rounded otherwise
    if type(value) in (list, tuple):
        members = [on_host(one) for one in value]
        return value if all(a is b for a, b in zip(members, value, strict=True)) else type(value)(members)
    if type(value) is dict:
        found = {name: on_host(one) for name, one in value.items()}
        return value if all(found[name] is one for name, one in value.items()) else found
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {name: new for name, one in held.items() if (new := on_host(one)) is not one}
        return replace(value, **changed) if changed else value
    return value
