"""Boost06: what is measured, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from papers.boost06 import method
from papers.measure import Job, Store
from papers.regression import Curve, kept
from papers.rows import Claim, Drift, Row
from scipy.stats import ttest_rel

#: Splits of KIN40K as printed, and of what has no printed number.
SPLITS, FEW = 10, 3
#: Mean and deviation of the best test NMSE in percent over ten runs (table 3).
PRINTED = {"single": (2.80, 0.06), "boosted": (1.76, 0.02)}
QUICK = {"boost06/kin40k/single/0": (400,), "boost06/kin40k/boosted/0": (40,)}
#: Tables 3 and 4: the first vectors of one curve.
DRIFT = {"boost06/kin40k/single/0": Drift("nmse", 1.0, "percent of the variance, in float32; a choice may tip", (12,))}


def jobs() -> dict[str, Job]:
    found: dict[str, Job] = {}
    for table, n in (("kin40k", SPLITS), ("house_8L", FEW), ("house_16H", FEW)):
        protocol = "printed" if table == "kin40k" else "another table of the survey"
        for seed in range(n):
            for model in PRINTED:
                found[f"boost06/{table}/{model}/{seed}"] = Job(
                    method.cell, (table, model, seed), protocol, seed, model, (20,)
                )
    found["boost06/memory/0"] = Job(method.to_memory, (0,), "up to 1800 vectors", short=(20,))
    for way in method.WAYS:
        found[f"boost06/ways/{way}/0"] = Job(method.other_way, (way, 0), way, 0, way, (3,))
    return found


def curves(store: Store, table: str) -> dict[str, list[Curve]]:
    """Curves of both models on the splits that both have."""
    found = {model: store.under(f"boost06/{table}/{model}/") for model in PRINTED}
    shared = [seed for seed in found["single"] if seed in found["boosted"]]
    return {model: [kept(cells[seed]) for seed in shared] for model, cells in found.items()}


def best(many: list[Curve]) -> np.ndarray:
    return np.array([one.nmse.min() for one in many])


def rows(store: Store) -> Iterator[Row | Claim]:
    today = [cell["nmse"] for cell in store.under("boost10/today/").values()]
    found = curves(store, "kin40k")
    for model, (printed, spread) in PRINTED.items():
        own = best(found[model])
        cells = [f"boost06/kin40k/{model}/"]
        what = f"KIN40K, {model}: best test NMSE, %"
        yield Row("Table 3", what, printed, own, cells, today, spread, SPLITS, "lower")
    if not found["single"]:
        return
    yield from claims(found, ["boost06/kin40k/"])
    for table in ("house_8L", "house_16H"):
        other = curves(store, table)
        if other["single"]:
            yield from claims(other, [f"boost06/{table}/"], table, "census-house is not to be had")
    memory = store.under("boost06/memory/")
    for cell in memory.values():
        one = kept(cell)
        there = np.exp(np.interp(-np.log(2.80), -np.log(one.nmse), np.log(one.vectors)))
        outcome = f"with {there:.0f} vectors; {one.nmse[-1]:.2f} % with {one.vectors[-1]:.0f}"
        what = (
            "KIN40K, single: the printed 2.80 % is reached with as many vectors as Boost10's table V has near it (640)"
        )
        yield Claim("Table 2 (lost in our copy)", what, bool(there <= 700), outcome, ["boost06/memory/"])
    ways = {way: kept(cell).nmse.min() for way, cell in store.under("boost06/ways/").items()}
    if ways:
        usual = best(found["boosted"])[0]
        outcome = f"{usual:.2f} % as in the table; " + ", ".join(f"{v:.2f} % with {w}" for w, v in ways.items())
        what = "other subsets than 500 rows, or exact weights, explain the difference"
        yield Claim("Table 3", what, min(ways.values()) <= 1.1 * 1.76, outcome, ["boost06/ways/"])


def claims(found: dict[str, list[Curve]], cells: list[str], table: str = "KIN40K", note: str = "") -> Iterator[Claim]:
    """What the paper says of boosted models beside a single one."""
    alone, together = best(found["single"]), best(found["boosted"])
    n = len(alone)
    p = f", paired t-test p = {ttest_rel(alone, together).pvalue:.1g}" if n > 1 else ""
    outcome = (
        f"{alone.mean():.2f} and {together.mean():.2f} %, boosted better in {int((together < alone).sum())} of {n}{p}"
    )
    end = f" ({note})" if note else ""
    yield Claim("Table 3", f"{table}: boosted models are better than a single one{end}", bool((together < alone).all()),
                outcome, cells)  # fmt: skip
    ratios = []
    for single, boosted in zip(found["single"], found["boosted"], strict=True):
        at = int(single.nmse.argmin())
        ratios.append(boosted.reaching(single.nmse[at])[0] / single.seconds[at])
    reached = [ratio for ratio in ratios if np.isfinite(ratio)]
    times = f"{np.mean(reached):.2f} times the CPU seconds, " if reached else ""
    outcome = f"{times}in {len(reached)} of {n} splits"
    what = f"{table}: boosted models are as good in less time (printed times are lost in our copy){end}"
    yield Claim("Table 4", what, bool(reached) and bool(np.mean(reached) < 1), outcome, cells)
    compared = [
        [b.nmse[i] < s.at(t)[0] for i, t in enumerate(b.seconds) if t >= s.seconds[0]]
        for s, b in zip(found["single"], found["boosted"], strict=True)
    ]
    ahead = [np.mean(times) for times in compared if times]
    if not ahead:  # boosting ended before the single model's first vector
        return
    figure = "Figure 4" if table == "KIN40K" else "Figure 6"
    outcome = f"at {100 * min(ahead):.0f} % of the times at least"
    yield Claim(figure, f"{table}: boosted models are ahead at equal time{end}", min(ahead) == 1.0, outcome, cells)


def draw(store: Store, folder) -> None:
    """Figures 4 (KIN40K) and 6 (tables of the census): error against CPU time, a line a run."""
    import matplotlib.pyplot as plt

    for table in ("kin40k", "house_8L", "house_16H"):
        found = curves(store, table)
        figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        for model, colour in (("single", "tab:red"), ("boosted", "tab:blue")):
            for i, one in enumerate(found[model]):
                axes.loglog(one.seconds, one.nmse, color=colour, lw=1, label=None if i else model)
            if table == "kin40k":
                axes.axhline(PRINTED[model][0], color=colour, lw=0.8, ls="--", label=f"{model}, printed best")
        axes.set(title=f"Boost06 on {table}", xlabel="CPU seconds", ylabel="test NMSE, %")
        axes.grid(alpha=0.3, which="both")
        axes.legend(frameon=False)
        figure.savefig(folder / f"boost06_{table}.png", dpi=110)
        plt.close(figure)
