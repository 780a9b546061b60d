"""`load`: read a fitted model from an untrusted file; every fault is a sentence, and no code of the file runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline

from mercer.codec.tree import PREFIX, Decoder
from mercer.files.save import FORMAT, digest, require_few_values, try_one_row
from mercer.parts import require

#: How many bytes of arrays a file may ask for, in units of its own size: numbers are stored in half their width, and
#: equal arrays once.
EXPANSION = 64


def load(path: str | os.PathLike[str], *, device: Any = None) -> Any:
    """Read a model that `save` wrote: in this or any earlier version, on this or any other kind of machine.

    Parameters
    ----------
    path : str or path
        A file of `save`. The file is not trusted: classes, fields, types, shapes and numbers are checked, and the
        model must predict one row before it is returned.
    device : "auto", "cpu", "cuda", a torch device or None, default None
        Where the model predicts; None is the device it was fitted on, or "auto" where this machine lacks it.

    Returns
    -------
    estimator
        As it was saved; without the files' `stages` it has no `staged_predict`.

    Examples
    --------
    >>> import mercer
    >>> mercer.load("no-such-file.mercer")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no file no-such-file.mercer
    """
    tree, arrays, size = contents(path)
    try:
        model = Decoder(arrays, EXPANSION * size).decode(tree.get("model"))
        last = model[-1] if isinstance(model, Pipeline) else model
        good = hasattr(last, "get_params") and hasattr(last, "n_features_in_")
        require(good, "the model in the file", "a fitted estimator", type(last).__name__)
        try_one_row(model, size)
        if hasattr(last, "device"):
            last.device = _device_here(last.device)
    except Exception as fault:  # a broken file may lead to any error
        raise _refusal(path, fault) from None
    if device is not None and hasattr(last, "device"):
        last.device = device
    return model


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe the model in a file without building it: format, version, class, parameters, sizes.

    `mercer info` prints this.
    """
    tree, arrays, size = contents(path)
    try:
        model = _last_step(tree["model"])
        fitted = {name: _brief(node) for name, node in model["fitted"].items() if _is_short(node)}
        described = {
            "class": str(model["class"]),
            "pipeline": None if model is tree["model"] else _steps(tree["model"]),
            "format": tree["format"],
            "mercer": tree["mercer"],
            "bytes": size,
            "parameters": {name: _brief(node) for name, node in model["parameters"].items()},
            "fitted": fitted,
            "classes": _array_values(model["fitted"].get("classes_"), arrays),
            "columns": _array_values(model["fitted"].get("feature_names_in_"), arrays),
            "kernel": _brief(model["fitted"].get("kernel_")),
            "arrays": {name: f"{array.dtype} {array.shape}" for name, array in sorted(arrays.items())},
        }
    except Exception as fault:
        raise _refusal(path, fault) from None
    return {name: value for name, value in described.items() if value is not None}


def _last_step(node: Any) -> Any:
    """The estimator at the end of a pipeline, or the estimator itself."""
    return node["parameters"]["steps"][-1]["tuple"][1] if node["class"] == f"{PREFIX}Pipeline" else node


def _steps(node: Any) -> list[str]:
    """The classes of the steps of a pipeline."""
    steps = [step["tuple"][1] for step in node["parameters"]["steps"]]
    return [str(step["class"]) if isinstance(step, dict) else str(step) for step in steps]


def contents(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """The description, the arrays and the size in bytes of a file, checked as far as that needs no classes."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    size = Path(path).stat().st_size
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            require("mercer" in metadata, "the metadata", "that of a mercer model", sorted(metadata))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        require_few_values(metadata["mercer"])
        tree = json.loads(metadata["mercer"])
        require(isinstance(tree, dict), "the description", "a JSON object", type(tree).__name__)
        known = isinstance(tree.get("format"), int) and 1 <= tree["format"] <= FORMAT
        newer = f"at most {FORMAT}: it was written by mercer {tree.get('mercer')}, which is newer than this one"
        require(known, "the format of the file", newer, tree.get("format"))
        intact = digest(metadata["mercer"], arrays) == metadata.get("sha256")
        require(intact, "the checksum of the file", "that of its contents", "another: the file is damaged")
    except SafetensorError:
        raise _refusal(path, ValueError(_describe_foreign(path))) from None
    except Exception as fault:  # of JSON, or ours
        raise _refusal(path, fault) from None
    return tree, arrays, size


def _describe_foreign(path: str | os.PathLike[str]) -> str:
    """Describe a file that `save` did not write, or that was cut short."""
    with open(path, "rb") as file:
        pickled = file.read(1) == b"\x80"
    if pickled:
        return "it looks like a pickle, which pickle or joblib read; a pickle can run code, so load only your own"
    return "it was not written by mercer.save, or it was cut short"


def _refusal(path: str | os.PathLike[str], fault: BaseException) -> ValueError:
    words = str(fault) or type(fault).__name__
    return ValueError(f"{path} is no model that can be read: {words}")


def _device_here(device: Any) -> Any:
    """The device, or "auto" where this machine lacks it."""
    if device == "auto":
        return device
    require(isinstance(device, str), "device", "a name", device)
    found = torch.device(device)
    here = found.type == "cpu" or (found.type == "cuda" and (found.index or 0) < torch.cuda.device_count())
    return device if here else "auto"


def _is_short(node: Any) -> bool:
    """Whether a node is a number, a text or a sentence."""
    return not isinstance(node, dict | list) or (isinstance(node, dict) and "stop_reason" in node)


def _brief(node: Any) -> Any:
    """A node of the description in few words."""
    if isinstance(node, dict) and "class" in node:
        inner = node.get("fields", {})
        fields = ", ".join(f"{name}={_brief(field)}" for name, field in inner.items())
        return f"{str(node['class']).partition('.')[2]}({fields})"
    if isinstance(node, dict):
        return f"array {node['array']}" if "array" in node else next(iter(node.values()), None)
    return node


def _array_values(node: Any, arrays: dict[str, np.ndarray]) -> list[Any] | None:
    """The values of an array; text stands in the description itself."""
    if not isinstance(node, dict):
        return None
    return list(node["objects"]) if "objects" in node else arrays[node["array"]].tolist()
