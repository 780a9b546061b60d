"""Where the seconds of a default fit go: one line for each table size, number of classes and kind of column.

    python benchmarks/speed/profile_fit.py [--rows 500 2000 5000 20000] [--outputs 1 2 7 26] [--out profile.json]

Tables are made here: ten columns, a smooth target with noise, or classes cut from it; mixed tables have two further
columns of categories and missing values. One thread, so that every call is seen. The shares are cumulative times of the
functions named in `PARTS`; "other" is the rest of `fit`.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mercer import KernelBoostingClassifier, KernelBoostingRegressor

#: Parts of a fit: file and function whose cumulative time each takes.
PARTS = {
    "read": ("preprocessing/read.py", "read"),
    "grid": ("selection/halving.py", "score_grid"),
    "column maps": ("selection/halving.py", "score_column_maps"),
    "metrics": ("selection/halving.py", "learn_metrics"),
    "other maps": ("selection/halving.py", "learn_metrics_on_other_maps"),
    "rescore": ("selection/halving.py", "rescore_survivors"),
    "gradient steps": ("selection/halving.py", "take_further_gradient_steps"),
    "descent": ("selection/halving.py", "descend_on_held_out_error"),
    "likelihood": ("selection/halving.py", "likelihood_ensemble"),
    "solve": ("forward/loop.py", "run"),
    "compress": ("forward/compress_members.py", "compress_members"),
    "held out": ("forward/held_out.py", "held_out_predictions"),
    "attributes": ("forward/fitted_attributes.py", "fitted_attributes"),
}


def table(n: int, outputs: int, mixed: bool) -> tuple[Any, np.ndarray]:
    """Inputs and targets: numbers for one output, else so many classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    f = np.sin(2 * X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] ** 2 + X[:, 3] + 0.3 * rng.normal(size=n)
    y = f if outputs == 1 else np.searchsorted(np.quantile(f, np.arange(1, outputs) / outputs), f)
    if not mixed:
        return X, y
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(10)])
    frame["kind"] = rng.choice(["a", "b", "c", "d"], n)
    frame.loc[rng.random(n) < 0.1, "x4"] = np.nan
    return frame, y


def profile(n: int, outputs: int, mixed: bool) -> dict[str, Any]:
    """Seconds of the second fit of a process, whole and by parts."""
    X, y = table(n, outputs, mixed)
    model = (KernelBoostingRegressor if outputs == 1 else KernelBoostingClassifier)(random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    watch = cProfile.Profile()
    watch.enable()
    model.fit(X, y)
    watch.disable()
    found = pstats.Stats(watch).stats  # type: ignore[attr-defined]
    total = max(values[3] for (_, _, name), values in found.items() if name == "fit")
    parts = {}
    for label, (file, function) in PARTS.items():
        times = [v[3] for (path, _, name), v in found.items() if name == function and path.endswith(file)]
        parts[label] = sum(times) / total
    parts["other"] = 1 - sum(parts.values())
    return {"rows": n, "outputs": outputs, "mixed": mixed, "seconds": seconds, "parts": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 5000, 20_000])
    parser.add_argument("--outputs", type=int, nargs="+", default=[1, 2, 7, 26])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    KernelBoostingRegressor(random_state=0).fit(*table(300, 1, False))  # compile and load everything
    lines = []
    print("| rows | outputs | columns | seconds | " + " | ".join([*PARTS, "other"]) + " |")
    print("|" + "---|" * (len(PARTS) + 5))
    for n in asked.rows:
        for outputs in asked.outputs:
            for mixed in (False, True):
                line = profile(n, outputs, mixed)
                lines.append(line)
                cells = " | ".join(f"{100 * share:.0f}" for share in line["parts"].values())
                kind = "mixed" if mixed else "numbers"
                print(f"| {n} | {outputs} | {kind} | {line['seconds']:.1f} | {cells} |", flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
