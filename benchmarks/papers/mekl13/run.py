"""MEKL13 beside ours: tables 2 and 3 and figure 1; measures, judges and writes `results.md`.

    MERCER_DATA=… python benchmarks/papers/mekl13/run.py                    # everything not yet in ours.json
    MERCER_DATA=… python benchmarks/papers/mekl13/run.py --sets iris wine   # some sets
    MERCER_DATA=… python benchmarks/papers/mekl13/run.py --figure           # figure 1 alone
    python benchmarks/papers/mekl13/run.py --report                         # only write results.md

Every split is stored in `ours.json` as soon as it is measured, so a run may be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import protocol
from report import write
from rivals import RIVALS, Pairwise
from sklearn.model_selection import train_test_split

from mercer import MultiKernelMHKSClassifier, RPEMEKLClassifier

HERE = Path(__file__).parent
OURS = HERE / "ours.json"
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))
SIZES = (0.1, 0.2, 0.3, 0.4, 0.5)
#: Training rows of rivals on the large sets.
RIVAL_ROWS = 600

Cell = dict[str, Any]


def ours(name: str, data: protocol.Split, seed: int, sizes: tuple[float, ...]) -> Cell:
    """RPEMEKL with c, λ and p by cross-validation; its time is that of the final members alone (as in table 3)."""
    few = name in protocol.LARGE
    options: dict[str, Any] = {"scale_inputs": False, "random_state": seed}
    grid = {"c": "paper", "coupling": "paper", "n_folds": 2 if few else 3}
    fewer = (0.1, 0.3) if few else (0.1, 0.3, 0.5) if name in protocol.MANY else SIZES
    tried = tuple(s for s in sizes if s in fewer)
    model = RPEMEKLClassifier(**grid, subset_size=tried, **options).fit(data.X, data.y)
    chosen = {"c": model.c_, "coupling": model.coupling_, "subset_size": model.subset_size_}
    began = time.perf_counter()
    RPEMEKLClassifier(**chosen, **options).fit(data.X, data.y)
    seconds = time.perf_counter() - began
    return {"accuracy": model.score(data.X_test, data.y_test), "seconds": seconds, "chosen": chosen}


def multik(name: str, data: protocol.Split, seed: int, chosen: Cell) -> Cell:
    """MultiK-MHKS with c and λ by cross-validation; on the large sets with those that RPEMEKL chose."""
    options: dict[str, Any] = {"scale_inputs": False, "random_state": seed}
    if name not in protocol.LARGE:
        model = MultiKernelMHKSClassifier("paper", "paper", "paper", n_folds=3, **options).fit(data.X, data.y)
        chosen = {"c": model.c_, "coupling": model.coupling_}
    chosen = {key: chosen[key] for key in ("c", "coupling")}
    began = time.perf_counter()
    model = MultiKernelMHKSClassifier(**chosen, **options).fit(data.X, data.y)
    seconds = time.perf_counter() - began
    return {"accuracy": model.score(data.X_test, data.y_test), "seconds": seconds, "chosen": chosen}


def rival(name: str, method: str, data: protocol.Split, seed: int) -> Cell:
    """A rival whose one parameter is chosen on a third of the training rows, held out."""
    fit, choices = RIVALS[method]
    X, y = data.X, data.y
    if name in protocol.LARGE:
        rows = np.random.default_rng(seed).permutation(len(y))[:RIVAL_ROWS]
        X, y = X[rows], y[rows]
    rows, held = train_test_split(np.arange(len(y)), test_size=1 / 3, random_state=seed)
    if len(np.unique(y[rows])) < 2:
        held = rows
    scores = [Pairwise.fit(fit, X[rows], y[rows], choice).score(X[held], y[held]) for choice in choices]
    chosen = choices[int(np.argmax(scores))]
    began = time.perf_counter()
    model = Pairwise.fit(fit, X, y, chosen)
    seconds = time.perf_counter() - began
    return {"accuracy": model.score(data.X_test, data.y_test), "seconds": seconds, "chosen": chosen}


def measure(names: list[str], methods: list[str], splits: int) -> None:
    results = json.loads(OURS.read_text()) if OURS.exists() else {}
    for seed in range(splits):
        for name in names:
            rows = results.setdefault(name, {})
            data = protocol.split(name, seed)
            for method in methods:
                cells = rows.setdefault(method, {})
                if str(seed) in cells:
                    continue
                if method == "RPEMEKL":
                    cell = ours(name, data, seed, SIZES)
                elif method == "RPEMEKL p=0.1":
                    cell = ours(name, data, seed, SIZES[:1])
                elif method == "MultiK-MHKS":
                    cell = multik(name, data, seed, rows["RPEMEKL"][str(seed)]["chosen"])
                else:
                    cell = rival(name, method, data, seed)
                cells[str(seed)] = cell
                OURS.write_text(json.dumps(results, indent=1))
                print(name, seed, method, round(100 * cell["accuracy"], 2), round(cell["seconds"], 2), flush=True)


def figure() -> dict[str, list[float]]:
    """Figure 1: ln L over ten iterations on the five sets of two classes, first member of the first split."""
    paths = {}
    for name in protocol.BINARY:
        data = protocol.split(name, 0)
        options: dict[str, Any] = {"subset_size": 0.3, "n_members": 1, "tol": 0.0, "max_iter": 10, "random_state": 0}
        model = RPEMEKLClassifier(scale_inputs=False, **options).fit(data.X, data.y)
        paths[name] = np.log(model.objective_path_[:, 0]).tolist()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(7, 4))
    for name, path in paths.items():
        axes.plot(range(1, len(path) + 1), path, marker="o", markersize=3, label=name)
    axes.set(xlabel="iteration", ylabel="ln L, eq. (5)", title="RPEMEKL (c = λ = 1, p = 0.3 N)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(alpha=0.3)
    plt.tight_layout()
    plt.savefig(HERE.parents[2] / "docs" / "figures" / "mekl13_figure1.png", dpi=110)
    (HERE / "figure1.json").write_text(json.dumps(paths, indent=1))
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(protocol.SETS))
    parser.add_argument("--methods", nargs="*", default=["RPEMEKL", "RPEMEKL p=0.1", "MultiK-MHKS", *RIVALS])
    parser.add_argument("--splits", type=int, default=protocol.SPLITS, help="the first few splits of all sets")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--figure", action="store_true")
    arguments = parser.parse_args()
    if arguments.figure or not (HERE / "figure1.json").exists():
        figure()
    if not (arguments.report or arguments.figure):
        try:
            import MKLpy  # noqa: F401
        except ImportError:
            warnings.warn("MKLpy is not installed: EasyMKL is left out", stacklevel=1)
            arguments.methods = [m for m in arguments.methods if m != "EasyMKL"]
        measure(arguments.sets, arguments.methods, arguments.splits)
    if OURS.exists():
        write(PAPER, json.loads(OURS.read_text()), json.loads((HERE / "figure1.json").read_text()), HERE / "results.md")


if __name__ == "__main__":
    main()
