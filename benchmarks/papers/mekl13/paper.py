"""MEKL13: what is measured, and what is said of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from papers.measure import Job, Store
from papers.mekl13 import methods, protocol
from papers.mekl13.rivals import RIVALS
from papers.rows import Claim, Drift, Row
from scipy.stats import ttest_rel

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
COLUMNS = PAPER["table2"]["columns"]
#: The rival that is quick enough to be measured on standardised inputs as well.
SCALED = "MKDA(SDP)"
OURS = ("RPEMEKL", "RPEMEKL p=0.1", "MultiK-MHKS")
QUICK = {"mekl13/iris/0/coupled": (), "mekl13/iris/0/SVM-2K": (), "mekl13/figure1/sonar": ()}
DRIFT = {
    "mekl13/iris/0/SVM-2K": Drift("accuracy", 0.014, "a share of 75 rows: one may tip"),
    "mekl13/iris/0/coupled": Drift("RPEMEKL", 0.014, "a share of 75 rows: one may tip"),
    "mekl13/figure1/sonar": Drift("path", 1e-6, "float64: the minimum of a convex objective"),
}


def jobs() -> dict[str, Job]:
    """Rivals are not measured on the two sets of thousands of rows a pair, where a choice takes an hour."""
    found: dict[str, Job] = {}
    for name in protocol.SETS:
        for seed in range(protocol.FEW if name == "page-blocks" else protocol.SPLITS):
            here = f"mekl13/{name}/{seed}"
            found[f"{here}/coupled"] = Job(methods.coupled_cell, (name, seed), seed=seed)
            found[f"{here}/standardised"] = Job(
                methods.coupled_cell, (name, seed, False), "standardised inputs", seed, "standardised"
            )
            found[f"{here}/today"] = Job(methods.today_cell, (name, seed), "today", seed)
            if name in protocol.LARGE or (seed >= protocol.FEW and name in protocol.MANY):
                continue
            for method in RIVALS:
                found[f"{here}/{method}"] = Job(methods.rival_cell, (name, seed, method), seed=seed, variant=method)
            other = f"{SCALED} standardised"
            found[f"{here}/{other}"] = Job(
                methods.rival_cell, (name, seed, SCALED, False), "standardised inputs", seed, other
            )
    return found | {f"mekl13/figure1/{name}": Job(methods.objective_path, (name,)) for name in protocol.BINARY}


def accuracies(store: Store, name: str, method: str, kind: str | None = None) -> dict[int, float]:
    """Percent right by split: as printed, or by another kind of cell."""
    kind = kind or ("coupled" if method in OURS else method)
    found = {}
    for key, cell in store.under(f"mekl13/{name}/").items():
        if key.partition("/")[2] == kind:
            own: Any = cell if method not in OURS else cell.get(method)
            if own is not None:
                found[cell["seed"]] = 100 * own["accuracy"]
    return found


def rows(store: Store) -> Iterator[Row | Claim]:
    for name, printed in PAPER["table2"]["rows"].items():
        if name == "letter":
            continue  # 432 inputs, not UCI's
        for method, (mean, spread) in zip(COLUMNS, printed, strict=True):
            ours = list(accuracies(store, name, method).values())
            now = list(accuracies(store, name, method, "today").values()) if method in OURS else []
            cells = [f"mekl13/{name}/{s}/{'coupled' if method in OURS else method}" for s in range(protocol.SPLITS)]
            yield Row("Table 2", f"{name}, {method}: accuracy, %", mean, ours, cells, now, spread, protocol.SPLITS)
            if method in (*OURS, SCALED) and not (method == SCALED and name in protocol.LARGE):
                kind = "standardised" if method in OURS else f"{method} standardised"
                other = list(accuracies(store, name, method, kind).values())
                cells = [f"mekl13/{name}/{s}/{kind}" for s in range(protocol.SPLITS)]
                yield Row("Table 2, standardised inputs", f"{name}, {method}: accuracy, %", mean, other, cells, now,
                          spread, protocol.SPLITS)  # fmt: skip
    for i, method in enumerate(COLUMNS[2:]):
        yield from significance(store, method, {n: p[i] for n, p in PAPER["table2"]["p_values"].items()})
    yield from faster(store)
    yield from converges(store)


def significance(store: Store, method: str, printed: dict[str, float]) -> Iterator[Claim]:
    """The printed p-values beside ours: paired t-tests of the splits that both methods have."""
    agree, told = [], []
    for name, p in printed.items():
        a, b = accuracies(store, name, "RPEMEKL"), accuracies(store, name, method)
        shared = [seed for seed in a if seed in b]
        if name == "letter" or len(shared) < 3:
            continue
        gap = np.array([a[s] - b[s] for s in shared])
        own = 1.0 if np.ptp(gap) == 0 else float(ttest_rel(gap, np.zeros_like(gap)).pvalue)
        row = PAPER["table2"]["rows"][name]
        sign = np.sign(row[0][0] - row[COLUMNS.index(method)][0])
        agree.append((own < 0.05) == (p < 0.05) and (p >= 0.05 or np.sign(gap.mean()) == sign))
        told.append(f"{name} {p:.3f}/{own:.3f}")
    if told:
        outcome = f"on {sum(agree)} of {len(agree)} sets (p printed/ours: {', '.join(told)})"
        what = f"RPEMEKL differs from {method} significantly where printed, and not elsewhere"
        yield Claim("Table 2, p-values", what, all(agree), outcome, ["mekl13/"])


def faster(store: Store) -> Iterator[Claim]:
    times = {}
    for name in PAPER["table3"]["rows"]:
        cell = store.cells.get(f"mekl13/{name}/0/coupled")
        if cell and "MultiK-MHKS" in cell:
            times[name] = (cell["RPEMEKL"]["seconds"], cell["MultiK-MHKS"]["seconds"])
    if times:
        won = sum(a < b for a, b in times.values())
        outcome = f"on {won} of {len(times)}: " + ", ".join(f"{n} {a:.2g}/{b:.2g} s" for n, (a, b) in times.items())
        yield Claim("Table 3", "RPEMEKL trains faster than MultiK-MHKS on all sets", won == len(times), outcome,
                    [f"mekl13/{name}/0/coupled" for name in times])  # fmt: skip


def converges(store: Store) -> Iterator[Claim]:
    """Figure 1: iterations until L changes by at most ξ = 10⁻³, and by 10⁻³ of itself."""
    paths = {name: np.exp(cell["path"]) for name, cell in store.under("mekl13/figure1/").items()}
    if paths:
        fall = {name: -np.diff(L) for name, L in paths.items()}
        own = {
            name: int(np.argmax(d <= 1e-3 * L[1:])) + 2
            for (name, d), L in zip(fall.items(), paths.values(), strict=True)
        }
        outcome = ", ".join(f"{name}: {k}" for name, k in own.items()) + " iterations to a change of 10⁻³ of L"
        what = "from the start of table 1 fewer than five iterations are usually enough"
        yield Claim("Figure 1", what, float(np.median(list(own.values()))) <= 5, outcome, ["mekl13/figure1/"])


def draw(store: Store, folder: Path) -> None:
    """Figure 1."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, cell in store.under("mekl13/figure1/").items():
        axes.plot(range(1, len(cell["path"]) + 1), cell["path"], marker="o", markersize=3, label=name)
    axes.set(xlabel="iteration", ylabel="ln L, eq. (5)", title="RPEMEKL (c = λ = 1, p = 0.3 N)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(alpha=0.3)
    figure.savefig(folder / "mekl13_figure1.png", dpi=110)
    plt.close(figure)
