"""One small cell of every table and figure of the papers, made again: a change that moves them has to be looked at.

`cells.py` of a paper's folder names small functions on generated rows, `cells.json` what they gave and how far they may
move, with the reason. Run `python tests/test_papers.py` to see all of them beside what is kept.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear, nnls

PAPERS = Path(__file__).parents[1] / "benchmarks" / "papers"
FOLDERS = sorted(path.parent for path in PAPERS.glob("*/cells.json"))
#: [value, tolerance, why] of each cell, by paper and name.
KEPT = {folder.name: json.loads((folder / "cells.json").read_text(encoding="utf-8")) for folder in FOLDERS}


@cache
def loaded(folder: Path) -> dict[str, Callable[[], float]]:
    """The cells of a folder, read once: what several of them are made from is computed once, too."""
    return runpy.run_path(str(folder / "cells.py"))["CELLS"]


@contextmanager
def cells_of(folder: Path) -> Iterator[dict[str, Callable[[], float]]]:
    """The cells of a folder, whose own modules are found, and forgotten afterwards: others have some of such names."""
    paths, before = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(folder), str(PAPERS)]
    try:
        yield loaded(folder)
    finally:
        sys.path[:] = paths
        for name in set(sys.modules) - before:
            if str(PAPERS) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


def test_every_paper_has_one_layout():
    folders = [path for path in PAPERS.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))]
    for file in ("run.py", "cells.py", "cells.json", "results.md"):
        assert not [path.name for path in folders if not (path / file).exists()], f"these folders lack {file}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_cell_is_kept_with_a_tolerance_and_a_reason(folder):
    with cells_of(folder) as cells:
        assert cells.keys() == KEPT[folder.name].keys()
    assert all(within >= 0 and why for _, within, why in KEPT[folder.name].values())


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper in KEPT for name in KEPT[paper]])
def test_a_cell_has_not_moved(paper, name):
    value, within, why = KEPT[paper][name]
    with cells_of(PAPERS / paper) as cells:
        found = cells[name]()
    assert abs(found - value) <= within, f"{paper}, {name}: {found:.6g} instead of {value:.6g} ± {within:g} ({why})"


def test_docs_have_a_line_for_each_that_the_summaries_have():
    page = runpy.run_path(str(PAPERS / "reproduce.py"))
    for name, parts in page["PAGES"].items():
        kept = (PAPERS.parents[1] / "docs" / "reproduce" / f"{name}.md").read_text(encoding="utf-8")
        assert kept.splitlines() == [line for part, title in parts.items() for line in page["lines"](part, title)][:-1]


@pytest.mark.parametrize("C", [1.0, 100.0, 10_000.0])
def test_the_core_vector_machine_finds_the_ball_that_least_squares_finds(C):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.sign(rng.normal(size=200))
    H = y[:, None] * (np.exp(-((X[:, None] - X) ** 2).sum(-1)) + 1) * y + np.eye(200) / C
    L = np.linalg.cholesky(H)  # ½βᵀHβ − Σβ is ½‖Lᵀβ − L⁻¹1‖² and a constant
    expected, _ = nnls(L.T, np.linalg.solve(L, np.ones(200)), maxiter=2000)
    minimum = runpy.run_path(str(PAPERS / "boost10" / "cvm.py"))["nonnegative_minimum"]
    found = minimum(torch.from_numpy(H), torch.zeros(200, dtype=torch.float64), C).numpy()
    # H has a condition of at most C · trace: 4e6 units of the last place at C = 10⁴ are 1e-9 of β; the rest is slack
    assert found == pytest.approx(expected, abs=1e-7 * expected.max())


@pytest.mark.parametrize("C", [1.0, 1000.0])
def test_svm_2k_ends_at_the_optimum_that_bounded_least_squares_finds(C):
    """Without a price on their difference (D ≈ 0) its two machines are SVMs of one kernel each.

    A duality gap of g leaves ½‖w − w*‖² ≤ g, and values at a row are off by at most ‖w − w*‖ √k(x, x). At C = 1000 the
    dual once was left at its first step, where one class is predicted everywhere.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 2)), np.sign(rng.normal(size=150) + 1)
    square = ((X[:, None] - X) ** 2).sum(-1)
    K = np.exp(-square / np.array([2.0, 1.0])[:, None, None])
    decide = runpy.run_path(str(PAPERS / "mekl13" / "rivals.py"))["svm_2k"](K, y, (C, 1e-6, (0, 1)))
    expected, allowed = np.zeros(150), 0.0
    for view in K + 1:
        L = np.linalg.cholesky(y[:, None] * view * y + 1e-9 * np.eye(150))
        alpha = lsq_linear(L.T, np.linalg.solve(L, np.ones(150)), (0, C), tol=1e-12).x
        f = view @ (alpha * y)
        objective = (alpha * y) @ f / 2 + C * np.maximum(1 - y * f, 0).sum()
        expected, allowed = expected + f / 2, allowed + np.sqrt(2 * 1e-4 * 2 * objective * 2) / 2
    assert abs(decide(K) - expected).max() <= 2 * allowed


def judged(*runs: float, printed: float, **options: object) -> tuple[float, str]:
    sys.path.insert(0, str(PAPERS))
    try:
        verdict = runpy.run_path(str(PAPERS / "judge.py"))["judge"](runs, printed, **options)
    finally:
        del sys.path[0]
    return verdict.difference, verdict.word


def test_a_printed_number_of_one_run_is_as_uncertain_as_one_of_ours():
    difference, word = judged(1.0, 2.0, 3.0, printed=0.0)  # a mean of 2 ± 1/√3 against one run ± 1
    assert difference == pytest.approx(2 / (1 + 1 / 3) ** 0.5)
    assert word == "reproduced"
    assert judged(1.0, 2.0, 3.0, printed=0.0, higher=False)[0] == pytest.approx(-difference)


def test_a_printed_mean_has_the_error_of_its_own_runs():
    difference, word = judged(1.0, 2.0, 3.0, printed=0.0, printed_spread=2.0, printed_runs=4)
    assert difference == pytest.approx(2 / (1 / 3 + 1) ** 0.5)
    assert judged(11.0, 12.0, 13.0, printed=0.0, printed_spread=2.0, printed_runs=4)[1] == "better"
    assert word == "reproduced"


def test_what_has_no_spread_is_not_judged_and_counting_is_a_spread():
    assert judged(1.0, printed=2.0)[1] == "no spread"
    assert judged(90.0, printed=93.0, n_test=100)[0] == pytest.approx(-3 / (3.0 * 2**0.5))  # each ± 3 points


if __name__ == "__main__":
    for each in FOLDERS:
        with cells_of(each) as own:
            for label, cell in own.items():
                print(f"{each.name}, {label}: {cell():.8g}, kept {KEPT[each.name].get(label)}")
