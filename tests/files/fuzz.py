"""Model files with faults: bits flipped, bytes cut off or moved, fields changed by somebody who knows the format.

``python -m tests.files.fuzz --cases 10000`` runs many; every one must end in a sentence or in a model that answers.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as as_bytes

import mercer
from mercer.files.load import contents
from mercer.files.save import digest
from tests.files.models import NEW, fitted

#: One model of each family, small so that a fault meets something that matters.
NAMES = ("GreedyKernelRegressor", "KernelBoostingClassifier", "SparseGPRegressor", "SparseGPClassifier")
NAMES = (
    *NAMES,
    "ENRBFRegressor",
    "GaussianMixtureClassifier",
    "RPEMEKLClassifier",
    "EmpiricalKernelMap",
    "ARDSelector",
)
#: Seconds and bytes beyond which a file of some kilobytes took too much.
SECONDS, BYTES = 10.0, 1 << 30
#: What a stranger may write in place of a number, a text or an object.
STRANGE: list[Any] = [
    None, True, -1, 0, 2, 10**6, 10**12, 10**30, -(2**63), 0.5, 1e308, -1e-300, "", "nan", "cuda", "float128",
    "os.system", "mercer.parts.Component", [], [[]], {}, {"float": "inf"}, {"float": "x"}, {"tuple": None},
    {"array": "0"},
    {"array": "99"}, {"array": "0", "dtype": "complex128"}, {"array": "0", "dtype": "datetime64[ns]"}, {"slice": [1]},
    {"dict": [[1, 2], [3]]}, {"dict": [[[], 2]]}, {"objects": ["a"], "shape": [10**9], "kind": "U"},
    {"objects": [["a"]], "shape": [1], "kind": "O"}, {"class": "os.system", "fields": {"command": "true"}},
    {"class": "kernels.Gaussian", "fields": {"length_scale": 1e-320}}, {"class": "kernels.Precomputed", "fields": {}},
    {"class": "kernels.Polynomial", "fields": {"degree": 10**9}}, {"class": "kernels.Bias", "fields": {"sigma": 1}},
    {"class": "mixture.Features", "fields": {"n_inputs": 10**9, "products": True}},
    {"class": "forward.GreedyKernelRegressor", "parameters": {}, "fitted": {}},
]  # fmt: skip


def files(folder: Path) -> list[bytes]:
    """The sound files that faults are made in."""
    for name in NAMES:
        fitted(name).save(folder / f"{name}.mercer", stages=name == NAMES[0])
    return [(folder / f"{name}.mercer").read_bytes() for name in NAMES]


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bits the other way round."""
    spoiled = bytearray(data)
    for at in rng.integers(len(data), size=rng.integers(1, 9)):
        spoiled[at] ^= 1 << int(rng.integers(8))
    return bytes(spoiled)


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    """A piece is missing, at the end or inside, or stands twice."""
    a, b = np.sort(rng.integers(len(data) + 1, size=2))
    return [data[:a], data[:a] + data[b:], data[:b] + data[a:]][rng.integers(3)]


def overwritten(data: bytes, rng: np.random.Generator) -> bytes:
    """Noise over a piece, often the header."""
    n = int(rng.integers(1, 200))
    at = int(rng.integers(8 if rng.random() < 0.3 else max(len(data) - n, 1)))
    return data[:at] + rng.bytes(n) + data[at + n :]


def forged(data: bytes, rng: np.random.Generator, folder: Path) -> bytes:
    """Values of the description changed, or numbers of the arrays, under a checksum that is right."""
    path = folder / "sound.mercer"
    path.write_bytes(data)
    tree, _, _ = contents(path)
    arrays = from_bytes(data)
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.3:
            name = sorted(arrays)[rng.integers(len(arrays))]
            arrays[name] = strange_array(arrays[name], rng)
        else:
            change(tree, rng)
    text = json.dumps(tree)
    return as_bytes(arrays, {"mercer": text, "sha256": digest(text, arrays)})


def strange_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The array with a strange number, of another shape or of another type."""
    how = rng.integers(4)
    if how == 0 and array.size and array.dtype != bool:
        changed = array.copy().reshape(-1)
        kinds = [np.nan, np.inf, 1e38, -1.0, 0.0] if array.dtype.kind == "f" else [-1, 0, 2**31 - 1]
        changed[rng.integers(array.size)] = kinds[rng.integers(len(kinds))]
        return changed.reshape(array.shape)
    if how == 1:
        return np.ascontiguousarray(array[..., :0] if array.ndim else array[None])
    if how == 2:
        return np.ascontiguousarray(array.T if array.ndim > 1 else array[None])
    with np.errstate(all="ignore"):
        return array.astype([np.int32, np.float16, np.uint8, np.bool_][rng.integers(4)])


def change(tree: Any, rng: np.random.Generator) -> None:
    """One value somewhere in the tree replaced, removed or moved."""
    places = list(walk(tree))
    holder, key = places[rng.integers(len(places))]
    how = rng.random()
    if how < 0.2:
        del holder[key]
    elif how < 0.3 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    elif how < 0.5:
        other, place = places[rng.integers(len(places))]
        holder[key] = json.loads(json.dumps(other[place]))  # a copy: a tree has no circles
    else:
        holder[key] = STRANGE[rng.integers(len(STRANGE))]


def walk(tree: Any) -> Any:
    """Every value of a tree by what holds it and its key."""
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from walk(value)


def run(seed: int, sound: list[bytes], folder: Path) -> tuple[str, str]:
    """One case: what was done, and how it ended; anything but a sentence or an answer is an error that is raised."""
    rng = np.random.default_rng(seed)
    data = sound[rng.integers(len(sound))]
    ways: dict[str, Any] = {"flipped": flipped, "cut": cut, "overwritten": overwritten}
    kind = [*ways, "forged", "forged", "forged"][rng.integers(6)]
    spoiled = forged(data, rng, folder) if kind == "forged" else ways[kind](data, rng)
    path = folder / "case.mercer"
    path.write_bytes(spoiled)
    began, before = time.perf_counter(), peak()
    try:
        model = mercer.load(path)
    except ValueError as fault:
        ended = "refused" if "is no model that can be read: " in str(fault) else f"no sentence: {fault}"
    else:
        X = np.zeros((2, model.n_features_in_)) if model.n_features_in_ != NEW.shape[1] else NEW
        (model.predict if hasattr(model, "predict") else model.transform)(X)
        ended = "loaded"
    assert ended in ("loaded", "refused"), f"case {seed}: {ended}"
    assert time.perf_counter() - began < SECONDS, f"case {seed} took too long"
    assert peak() - before < BYTES, f"case {seed} took too much memory"
    assert kind == "forged" or ended == "refused" or spoiled == data, f"case {seed}: damage was not noticed"
    return kind, ended


def peak() -> int:
    """The most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.files.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sound = files(folder)
        for seed in range(options.seed, options.seed + options.cases):
            try:
                counts[run(seed, sound, folder)] += 1
            except Exception as fault:
                faults += 1
                print(f"case {seed}: {type(fault).__name__}: {fault}", flush=True)
    for (kind, ended), n in sorted(counts.items()):
        print(f"{kind:12}{ended:9}{n:>7}")
    print(f"{options.cases} cases, {faults} with faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
