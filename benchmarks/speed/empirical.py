"""RPEMEKL against MultiK-MHKS, and RPEMEKL on half a million rows; times and ratios in one run.

    MERCER_DATA=… python benchmarks/speed/empirical.py            # everything
    MERCER_DATA=… python benchmarks/speed/empirical.py covtype    # or: sets

COVTYPE comes first, so that the peak of resident memory is its own.
"""

from __future__ import annotations

import resource
import sys
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from mercer import MultiKernelMHKSClassifier, RPEMEKLClassifier
from mercer.datasets import load

GIB = 2**30


def best_time(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The shortest of several runs, and what the last one made."""
    made: list[Any] = []
    return min(timeit.repeat(lambda: made.append(run()), number=1, repeat=repeats)), made[-1]


def covtype(n: int = 500_000, p: int = 300) -> None:
    data = load("covtype")
    order = np.random.default_rng(0).permutation(len(data.y))
    train, test = order[:n], order[n : n + 20_000]
    X, y, X_test, y_test = data.X[train], data.y[train], data.X[test], data.y[test]
    del data
    model = RPEMEKLClassifier(
        "paper",
        c=2.0**-4,
        coupling=2.0**-4,
        subset_size=p,
        multiclass="one-vs-rest",
        memory_limit=2.6 * GIB,
        random_state=0,
    )
    seconds, model = best_time(lambda: model.fit(X, y), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"COVTYPE, N = {n}, 7 classes, one against the rest, H = 3, p = {p}, float32:")
    print(f"  fit {seconds:.0f} s, peak memory {peak:.2f} GiB, accuracy {model.score(X_test, y_test):.4f}")
    try:
        MultiKernelMHKSClassifier("paper", 1.0, 1.0, multiclass="one-vs-rest", memory_limit=3 * GIB).fit(X, y)
    except MemoryError as error:
        print(f"  MultiK-MHKS: {error}")


def sets(repeats: int = 2) -> None:
    print("\nc = λ = 1/16, halves; RPEMEKL: H = 3, p = 0.1 N; best of", repeats)
    for name in ("segment", "waveform21", "page_blocks"):
        data = load(name)
        halves = train_test_split(data.X, data.y, test_size=0.5, random_state=0, stratify=data.y)
        for multiclass in ("one-vs-one", "one-vs-rest"):
            compare(name, multiclass, halves, repeats)


def compare(name: str, multiclass: str, halves: list[np.ndarray], repeats: int) -> None:
    X, X_test, y, y_test = halves
    options: dict[str, Any] = {
        "kernels": "paper",
        "c": 2.0**-4,
        "coupling": 2.0**-4,
        "multiclass": multiclass,
        "random_state": 0,
    }
    fast, ours = best_time(lambda: RPEMEKLClassifier(subset_size=0.1, **options).fit(X, y), repeats)
    slow, whole = best_time(lambda: MultiKernelMHKSClassifier(**options).fit(X, y), 1)
    print(
        f"  {name}, {multiclass}: RPEMEKL {fast:.2f} s, {100 * ours.score(X_test, y_test):.2f} %; "
        f"MultiK-MHKS {slow:.2f} s, {100 * whole.score(X_test, y_test):.2f} %: {slow / fast:.1f} times as fast",
        flush=True,
    )


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["covtype", "sets"]
    for part in chosen:
        {"covtype": covtype, "sets": sets}[part]()
