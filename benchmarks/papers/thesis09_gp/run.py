"""Thesis09, chapter 5, beside ours: sparse Gaussian process classifiers for M = 4 to 1024.

    MERCER_DATA=… python benchmarks/papers/thesis09_gp/run.py [ecoli usps spam artificial] [--sizes 4 8] [--splits 3]

As in the thesis: standardised inputs, an ARD Gaussian kernel, a random subset of rows for SD and SR/PP, whose kernel
is SD's; SPGP optimises kernel and inducing inputs together, from random rows. "Several" starts are tried there: here
three up to M = 256 and one beyond, of which that with the most evidence is kept. Its one random split is not known, so
ours are several; on E. coli, which is tested on its training rows, only the starts differ.
Ours are kept in `ours.json`, from which `results.md` is written.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from mercer import SparseGPClassifier
from mercer.datasets import load, make_redundant_gaussians

HERE = Path(__file__).parent
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))
OURS = HERE / "ours.json"
HEAD = """# Thesis09, chapter 5: sparse Gaussian process classifiers

Ours, with the printed number in brackets. `MERCER_DATA=… python benchmarks/papers/thesis09_gp/run.py`
Accuracies in percent, means over three random splits (ten for USPS at 256 and in full) where the thesis has one. SPGP
climbs 200 steps of Adam and 50 of L-BFGS from three starts (one beyond M = 256) and keeps the most evidence; its
seconds are those of all starts on one busy core of the machine at hand, the printed ones are of 2009.

Two printed numbers stay out of reach. E. coli at 256 is tested on its training rows and printed above the thesis' own
full model (93.75 against 90.18): with 256 inducing inputs for 336 rows SPGP comes close to the full model, and even
five starts of 400 steps end at 92.56. USPS at 256 is a peak between the printed 93.40 and 96.38 of one split; ours lie
between 95.5 and 97.2."""
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def ecoli(seed: int = 0) -> Split:
    data = load("ecoli")
    return data.X, data.y, data.X, data.y


def spam(seed: int = 0) -> Split:
    data = load("spambase")
    order = np.random.default_rng(seed).permutation(len(data.y))
    train, test = order[:3101], order[3101:]
    return data.X[train], data.y[train], data.X[test], data.y[test]


def usps(seed: int = 0) -> Split:
    data = load("usps")
    X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero((y == 3) | (y == 5)))
    train, test = chosen[:767], chosen[767:]
    return X[train], y[train], X[test], y[test]


SPLITS = {"ecoli": ecoli, "usps": usps, "spam": spam}


def measure(model: SparseGPClassifier, split: Split) -> list[float]:
    """Accuracy in percent, seconds of training, seconds of evaluation."""
    X, y, X_test, y_test = split
    began = time.perf_counter()
    model.fit(X, y)
    trained = time.perf_counter()
    right = float(np.mean(model.predict(X_test) == y_test))
    return [100 * right, trained - began, time.perf_counter() - trained]


def classifier(m: int, approximation: str, seed: int = 0, **options: Any) -> SparseGPClassifier:
    as_there = {"kernel": "gaussian", "ard": True, "inducing": "random", "scale_inputs": "standard"}
    options = as_there | {"random_state": seed, "device": "cpu"} | options
    return SparseGPClassifier(m, approximation=approximation, **options)


def projected(m: int, subset: SparseGPClassifier, split: Split) -> list[float]:
    """SR/PP with the kernels and rows of a fitted SD model; for several classes one model per class."""
    X, y, X_test, y_test = split
    kernels = subset.kernel_ if isinstance(subset.kernel_, list) else [subset.kernel_]
    bases = subset.basis_ if isinstance(subset.basis_, list) else [subset.basis_]
    began, probabilities, seconds = time.perf_counter(), [], 0.0
    for c, (kernel, basis) in enumerate(zip(kernels, bases, strict=True)):
        one = classifier(m, "pp", kernel=kernel, inducing=basis)
        one.fit(X, y if len(kernels) == 1 else y == subset.classes_[c])
        started = time.perf_counter()
        probabilities.append(one.predict_proba(X_test)[:, 1])
        seconds += time.perf_counter() - started
    trained = time.perf_counter() - began - seconds
    p = np.stack(probabilities, 1)
    label = subset.classes_[(p[:, 0] > 0.5).astype(int) if p.shape[1] == 1 else p.argmax(1)]
    return [100 * float(np.mean(label == y_test)), trained, seconds]


def run(name: str, ours: dict[str, Any], sizes: list[int] | None, splits: int) -> None:
    found = ours.setdefault(name, {})
    for m in (m for m in PAPER[name]["sizes"] if sizes is None or m in sizes):
        for seed in range(splits):
            cell, split = found.setdefault(str(m), {}).setdefault(str(seed), {}), SPLITS[name](seed)
            if "pp" not in cell:
                subset = classifier(m, "sd", seed)
                cell["sd"] = measure(subset, split)
                cell["pp"] = projected(m, subset, split)
            if "spgp" not in cell:
                several = {"max_iter": 200, "n_restarts": 2 if m <= 256 else 0}
                cell["spgp"] = measure(classifier(m, "spgp", seed, **several), split)
            OURS.write_text(json.dumps(ours, indent=1), encoding="utf-8")
            print(name, m, seed, {k: np.round(v, 2).tolist() for k, v in cell.items()}, flush=True)
    for seed in range(splits if name == "usps" else 1):
        cell = found.setdefault("full", {})
        if str(seed) not in cell:
            # 3101 rows of spam take eight seconds a step
            full = classifier(1, "full", seed, time_budget=400.0 if name == "spam" else None)
            cell[str(seed)] = measure(full, SPLITS[name](seed))
            print(name, "full", seed, np.round(cell[str(seed)], 2), flush=True)
            OURS.write_text(json.dumps(ours, indent=1), encoding="utf-8")


def artificial(ours: dict[str, Any], repeats: int = 10) -> None:
    """Table 5-3: length-scales of six inputs of which two carry the classes, two copy them and two are noise."""
    scales = []
    for seed in range(repeats):
        X, y = make_redundant_gaussians(200, random_state=seed)
        model = classifier(10, "spgp", seed, max_iter=100).fit(X, y)
        scales.append((1 / model.relevance_ * model.inputs_.scale).tolist())
    ours["artificial"] = scales
    OURS.write_text(json.dumps(ours, indent=1), encoding="utf-8")


def table(name: str, ours: dict[str, Any]) -> list[str]:
    printed, found = PAPER[name], ours[name]
    lines = [f"\n## {printed['where']}: {printed['what']}\n"]
    lines += ["| M | SD | SR/PP | SPGP | lowest, highest | training s | evaluation s | SPGP ≥ printed | SPGP ahead |"]
    lines += ["|---" * 9 + "|"]
    for i, m in enumerate(printed["sizes"]):
        cells = [cell for cell in found.get(str(m), {}).values() if "spgp" in cell]
        if not cells:
            continue
        means = {kind: np.mean([cell[kind] for cell in cells], 0) for kind in ("sd", "pp", "spgp")}
        each = [cell["spgp"][0] for cell in cells]
        row = [f"{means[kind][0]:.2f} ({printed[kind][i]:.2f})" for kind in ("sd", "pp", "spgp")]
        row += [f"{min(each):.2f}, {max(each):.2f}"]
        row += [f"{means['spgp'][1]:.2f} ({printed['spgp_train'][i]})"]
        row += [f"{means['spgp'][2]:.3f} ({printed['spgp_evaluate'][i]})"]
        goal = printed["spgp"][i] - 0.005  # two decimals are printed
        row += ["yes" if np.mean(each) >= goal else "the highest" if max(each) >= goal else "no"]
        row += ["yes" if means["spgp"][0] >= max(means["sd"][0], means["pp"][0]) else "no"]
        lines.append(f"| {m} | " + " | ".join(row) + " |")
    if "full" in found:
        full, theirs = np.mean(list(found["full"].values()), 0), printed["full"]
        lines.append(f"\nFull model: {full[0]:.2f} % ({theirs[0]} %) after {full[1]:.1f} s ({theirs[1]} s).")
    return lines


def write(ours: dict[str, Any]) -> None:
    lines = [HEAD]
    for name in ("ecoli", "spam", "usps"):
        if name in ours:
            lines += table(name, ours)
    if "artificial" in ours:
        printed, scales = PAPER["artificial"], np.array(ours["artificial"])
        middle = " | ".join(f"{v:.3g}" for v in np.median(scales, 0))
        noise_last = float(np.mean([set(np.argsort(s)[-2:]) == {4, 5} for s in scales]))
        lines += [
            f"\n## {printed['where']}: {printed['what']}\n",
            "| | x1 | x2 | x3 | x4 | x5 | x6 |",
            "|---" * 7 + "|",
        ]
        lines += [f"| ours, median of {len(scales)} draws | {middle} |"]
        lines += ["| printed | " + " | ".join(map(str, printed["length_scales"])) + " |"]
        lines += [f"\nBoth noise inputs come last in {100 * noise_last:.0f} % of the draws."]
    (HERE / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("which", nargs="*", default=["artificial", "ecoli", "usps", "spam"])
    options.add_argument("--sizes", type=int, nargs="+")
    options.add_argument("--splits", type=int, default=3)
    given = options.parse_args()
    ours: dict[str, Any] = json.loads(OURS.read_text(encoding="utf-8")) if OURS.exists() else {}
    for name in given.which:
        if name == "artificial":
            artificial(ours)
        else:
            run(name, ours, given.sizes, given.splits)
        write(ours)


if __name__ == "__main__":
    main()
