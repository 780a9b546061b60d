"""Greedy02: what is measured, and what is said of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from papers.greedy02 import bounds, protocol, tables
from papers.measure import Job, Store
from papers.rows import Claim, Drift, Row, per_split

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
SETS = [printed["data"] for printed in PAPER["table5"]["rows"]]
SIZES = {"boston": 100, "abalone": 10}  # splits as printed
QUICK = {
    "greedy02/table1/5/0": (), "greedy02/table2/boston/0": (1,), "greedy02/table3/abalone/0": (1,),
    "greedy02/table4/boston/0": (), "greedy02/svm5/breast_cancer": (), "greedy02/table6/qr/0": (),
    "greedy02/ripley/unit interval/1": (), "greedy02/figure1/0": (), "greedy02/theorem1/0": (),
}  # fmt: skip
ROUNDING = "float64: rounding moves the tenth digit, a choice that tips the third"
DRIFT = {
    "greedy02/table1/5/0": Drift("qr, n = 200", 1e-3, ROUNDING),
    "greedy02/table4/boston/0": Drift("mdl", 0.05, ROUNDING),
    "greedy02/table4/abalone/0": Drift("mdl", 0.01, ROUNDING),
    "greedy02/svm5/breast_cancer": Drift("svm", 0.0, "scikit-learn's machine on ten splits"),
    "greedy02/ripley/unit interval/1": Drift("mdl", 0.2, "percent of 1000 test rows: two may tip"),
}


def jobs() -> dict[str, Job]:
    found: dict[str, Job] = {}
    for seed in range(100):
        for p in (5, 10):
            found[f"greedy02/table1/{p}/{seed}"] = Job(tables.table1, (p, seed), seed=seed)
    for number, (data, n) in zip((2, 3), SIZES.items(), strict=True):
        for seed in range(n):
            found[f"greedy02/table{number}/{data}/{seed}"] = Job(tables.errors, (data, seed), seed=seed, short=(1,))
            found[f"greedy02/table4/{data}/{seed}"] = Job(tables.table4, (data, seed), seed=seed)
            if seed < 10:
                found[f"greedy02/today/{data}/{seed}"] = Job(tables.today, (data, seed), "today", seed)
    for name in SETS:
        found[f"greedy02/table5/{name}"] = Job(tables.table5, (name,), short=(1, 10))
        found[f"greedy02/today5/{name}"] = Job(tables.today5, (name,), "today", short=(1,))
        for which in ("svm", "rvm"):
            found[f"greedy02/{which}5/{name}"] = Job(tables.rival5, (name, which), variant=which)
    found["greedy02/table6/width"] = Job(tables.digit_width, short=(200,))
    found["greedy02/table6/svm"] = Job(tables.rival6)
    for digit in range(10):
        found[f"greedy02/table6/qr/{digit}"] = Job(tables.digit, (digit, protocol.USPS_SIZE))
    for digit in range(3):
        found[f"greedy02/table6/beyond/{digit}"] = Job(tables.digit, (digit, 1000), "up to 1000 vectors")
    found["greedy02/boston_svm"] = Job(tables.boston_svm)
    for reading in protocol.SINC_READINGS:
        literal = reading.c == 1.0
        found[f"greedy02/sinc/{reading}"] = Job(tables.sinc, (reading,), "printed" if literal else "c = 2", short=(1,))
    for scale, c in protocol.RIPLEY_READINGS:
        found[f"greedy02/ripley/{scale}/{c:g}"] = Job(tables.ripley, (scale, c), "a reading of width 0.5")
    for seed in range(20):
        found[f"greedy02/figure1/{seed}"] = Job(tables.overfitting, (seed,), "on sinc", seed)
        found[f"greedy02/theorem1/{seed}"] = Job(bounds.theorem1, (seed,), "ten rows, all subsets tried", seed)
    for n in (500, 1000, 2000, 4000):
        found[f"greedy02/figure7/{n}"] = Job(tables.figure7, (n,), "census-house 8L for 8H")
    found["greedy02/memory"] = Job(bounds.memory, (), "generated rows")
    return found


def rows(store: Store) -> Iterator[Row | Claim]:
    for printed in PAPER["table1"]["rows"]:
        cells = f"greedy02/table1/{printed['p']}/"
        for method in ("mrx", "qr", "ormp"):
            key = f"{method}, n = {printed['n']}"
            yield Row("Table 1", f"p = {printed['p']}, {key}: residual", printed[method][0],
                      per_split(store.under(cells), key), [cells], (), printed[method][1], 100, "lower")  # fmt: skip
    for number, (data, n) in zip((2, 3), SIZES.items(), strict=True):
        cells = f"greedy02/table{number}/{data}/"
        now = per_split(store.under(f"greedy02/today/{data}/"), "error")
        for printed in PAPER[f"table{number}"]["rows"]:
            for method in ("mrx", "qr", "ormp"):
                key = f"{method}, n = {printed['n']}"
                yield Row(f"Table {number}", f"{data}, {key}: squared error", printed[method][0],
                          per_split(store.under(cells), key), [cells], now, printed[method][1], n, "lower")  # fmt: skip
    yield from sized(store)
    yield from classes(store)
    yield from digits(store)
    yield from figures(store)
    yield from residuals(store)


def sized(store: Store) -> Iterator[Row | Claim]:
    """Table 4 and the support vector machine of the text."""
    for printed in PAPER["table4"]["rows"]:
        data = printed["data"]
        cells = f"greedy02/table4/{data}/"
        found = store.under(cells)
        for rule in ("mdl", "aic"):
            mean, spread = printed[rule]
            yield Row("Table 4", f"{data}, {rule.upper()}: squared error", mean, per_split(found, rule), [cells], (),
                      spread, SIZES[data], "lower")  # fmt: skip
            yield Row("Table 4", f"{data}, {rule.upper()}: vectors", printed[f"{rule}_n"],
                      per_split(found, f"{rule}_n"), [cells], (), None, SIZES[data], "neither")  # fmt: skip
    svm = store.cells.get("greedy02/boston_svm", {}).get("svm", [])
    mean, spread = PAPER["boston_svm"]["svm"]
    yield Row("Section 6.1", "boston, SVM: squared error", mean, svm, ["greedy02/boston_svm"], (), spread, 100, "lower")


def classes(store: Store) -> Iterator[Row | Claim]:
    """Table 5, read at the first minimum that lasts; both readings are told."""
    for printed in PAPER["table5"]["rows"]:
        name = printed["data"]
        now = store.cells.get(f"greedy02/today5/{name}", {}).get("errors", [])
        for column in ("aic", "mdl", "svm", "rvm"):
            cell = f"greedy02/{'table' if column in ('aic', 'mdl') else column}5/{name}"
            found = store.cells.get(cell, {})
            yield Row("Table 5", f"{name}, {column.upper()}: test error, %", printed[column], found.get(column, []),
                      [cell], now, None, 10, "lower")  # fmt: skip
            yield Row("Table 5", f"{name}, {column.upper()}: vectors", printed[f"{column}_n"],
                      found.get(f"{column}_n", []), [cell], (), None, 10, "neither")  # fmt: skip
        found = store.cells.get(f"greedy02/table5/{name}", {})
        for rule in ("aic", "mdl"):
            yield Row("Table 5, read at the smallest value of the path", f"{name}, {rule.upper()}: test error, %",
                      printed[rule], found.get(f"whole {rule}", []), [f"greedy02/table5/{name}"], runs=10,
                      better="lower")  # fmt: skip


def digits(store: Store) -> Iterator[Row | Claim]:
    """Table 6: the same rows as the paper's, hence no chance of counting; a single run has no spread."""
    svm, width = (store.cells.get(f"greedy02/table6/{name}", {}) for name in ("svm", "width"))
    for printed in PAPER["table6"]["rows"]:
        digit = printed["digit"]
        qr = store.cells.get(f"greedy02/table6/qr/{digit}", {})
        for column in ("aic", "mdl", "svm"):
            cells = [f"greedy02/table6/{'svm' if column == 'svm' else f'qr/{digit}'}"]
            found = {"svm": svm.get(f"{digit} svm"), "svm_n": svm.get(f"{digit} svm_n")} | qr
            share = [100 * value / 2007] if (value := found.get(column)) is not None else []
            yield Row("Table 6", f"digit {digit}, {column.upper()}: wrong test rows, %", 100 * printed[column] / 2007,
                      share, cells, better="lower")  # fmt: skip
            size = [n] if (n := found.get(f"{column}_n")) is not None else []
            yield Row("Table 6", f"digit {digit}, {column.upper()}: vectors", printed[f"{column}_n"], size, cells,
                      better="neither")  # fmt: skip
    errors = {c: width[str(c)] for w in protocol.USPS_WIDTHS_PER_INPUT if str(c := 256 * w) in width}
    if errors:
        best = min(errors, key=errors.__getitem__)
        outcome = f"c = {best:g} has the least of {', '.join(f'{c:g}: {e:g}' for c, e in errors.items())} wrong rows"
        yield Claim("Table 6", f"five folds choose the width c = {protocol.USPS_WIDTH:g} that we use",
                    best == protocol.USPS_WIDTH, outcome, ["greedy02/table6/width"])  # fmt: skip
    pairs = [(store.cells.get(f"greedy02/table6/{k}/{d}") for k in ("qr", "beyond")) for d in range(3)]
    known = [(a["aic"], b["aic"]) for a, b in pairs if a and b]
    if known:
        outcome = ", ".join(f"{a} → {b}" for a, b in known) + " wrong rows from 700 to 1000 vectors, digits 0 to 2"
        holds = sum(b for _, b in known) < sum(a for a, _ in known)
        yield Claim("Section 6.2", "more than 700 vectors lower the errors", holds, outcome,
                    ["greedy02/table6/qr/", "greedy02/table6/beyond/"])  # fmt: skip


def figures(store: Store) -> Iterator[Row | Claim]:
    ripley = store.under("greedy02/ripley/")
    if ripley:
        best = min(ripley.values(), key=lambda cell: min(cell["aic"], cell["mdl"]))
        same = [reading for reading, cell in ripley.items() if cell["aic_whole"] == cell["mdl_whole"]]
        outcome = f"under {len(same)} of {len(ripley)} readings of scaling and width"
        yield Claim("Figure 2", "MDL and AIC have their minima at one size", bool(same), outcome, ["greedy02/ripley/"])
        for reading, cell in ripley.items():
            for rule in ("aic", "mdl"):
                what = f"Ripley, {reading.replace('/', ', c = ')}, {rule.upper()}: test error, %"
                yield Row("Figure 3", what, 8.8, [cell[rule]], [f"greedy02/ripley/{reading}"], better="lower")
        outcome = (
            f"{min(best['aic'], best['mdl']):.1f} % is the least of {2 * len(ripley)} readings, found by test rows"
        )
        yield Claim("Figure 3", "8.8 % on Ripley's data", min(best["aic"], best["mdl"]) <= 8.8, outcome,
                    ["greedy02/ripley/"])  # fmt: skip
    for reading, cell in store.under("greedy02/sinc/").items():
        for key, printed, what, better in (("aic", 0.0315, "RMSE", "lower"), ("aic_n", 8, "kernels", "neither")):
            yield Row("Figure 4", f"sinc, {reading}, AIC: {what}", printed, cell[key], [f"greedy02/sinc/{reading}"],
                      better=better)  # fmt: skip
    found = store.under("greedy02/figure1/").values()
    if found:
        turned = sum(cell["test_end"] > 1.05 * cell["test_least"] for cell in found)
        yield Claim("Figure 1", "without regularisation the test error turns", turned == len(found),
                    f"in {turned} of {len(found)} draws of sinc, which stands for toy data without a name",
                    ["greedy02/figure1/"])  # fmt: skip
    steps = [(cell["steps"], cell["bound"]) for cell in store.under("greedy02/theorem1/").values()]
    if steps:
        share = max(a / b for a, b in steps)
        outcome = f"in {sum(a <= b for a, b in steps)} of {len(steps)} draws; at most {share:.2g} of the bound"
        yield Claim("Theorem 1", "ORMP has at most 18 Opt(ε/2) ‖K⁻¹‖² ln(‖y‖/ε) vectors", share <= 1, outcome,
                    ["greedy02/theorem1/"])  # fmt: skip
    cell = store.cells.get("greedy02/memory")
    if cell:
        times_mn = {name: cell[name] for name in (f"{n} x {m}" for n, m in bounds.SIZES)}
        outcome = ", ".join(f"{v:.1f} m n numbers for n x m = {name}" for name, v in times_mn.items())
        yield Claim("Section 4.2", "QR needs memory of O(mn), not the Gram matrix (at most 5 m n numbers)",
                    max(times_mn.values()) <= 5, outcome, ["greedy02/memory"])  # fmt: skip
    times = store.under("greedy02/figure7/")
    if {"500", "4000"} <= times.keys():
        power = {m: np.log(times["4000"][m] / times["500"][m]) / np.log(8) for m in ("qr", "mrx", "ormp")}
        outcome = ", ".join(f"{m} with the power {v:.1f} of the rows" for m, v in power.items())
        yield Claim("Figure 7", "ORMP's time grows fastest", max(power, key=lambda m: power[m]) == "ormp", outcome,
                    ["greedy02/figure7/"])  # fmt: skip


def residuals(store: Store) -> Iterator[Claim]:
    """Figures 5 and 6, and the weights of Algorithm 2 itself."""
    for number, data, last in ((2, "boston", 200), (3, "abalone", 350)):
        name = f"greedy02/table{number}/{data}/"
        found = store.under(name)
        if not found:
            continue
        end = {m: np.mean(per_split(found, f"residual {m}, n = {last}")) for m in ("mrx", "qr", "ormp")}
        outcome = ", ".join(f"{m} {v:.3f}" for m, v in end.items())
        if data == "boston":
            least = min(end, key=lambda m: end[m]) == "qr"
            yield Claim("Figure 5", "QR ends with the smallest residual on Boston", least, outcome, [name])
        else:
            share = max(end.values()) / min(end.values()) - 1
            yield Claim("Figure 6", "residuals on abalone differ by at most 13 %", share <= 0.13,
                        f"{outcome}: {100 * share:.0f} %", [name])  # fmt: skip
        own, again = (np.mean(per_split(found, f"{k}, n = {last}")) for k in ("own weights", "mrx"))
        outcome = f"squared error {own:.1f} with its own weights, {again:.1f} with recomputed ones"
        yield Claim("Section 4.1", f"MRX on {data} needs its weights recomputed at the end", bool(own > again), outcome,
                    [name])  # fmt: skip


def draw(store: Store, folder: Path) -> None:
    from papers.greedy02.figures import main

    main(folder, store.under("greedy02/figure7/"))
