"""The papers: cells that are kept have not moved, and docs/reproduce says what the store holds.

Where MERCER_DATA names the data, one real cell of each table is made again (`DRIFT` of a paper's folder), in about a
minute. Where it does not, `surrogates.py` of a folder has small cells on generated rows instead.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from concurrent.futures import Future
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear, nnls

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from papers import depends, pages  # noqa: E402
from papers.boost10.cvm import nonnegative_minimum  # noqa: E402
from papers.depends import digest, functions_of  # noqa: E402
from papers.greedy02 import surrogates as greedy_surrogates  # noqa: E402
from papers.judge import judge  # noqa: E402
from papers.measure import CHECKED, FIELDS, HERE, OLD, Again, Job, Store, cheapest_of_each_change, measure  # noqa: E402
from papers.mekl13.rivals import svm_2k  # noqa: E402
from papers.rows import Drift, mark  # noqa: E402

STORE = Store.read()
MODULES = {name: import_module(f"papers.{name}.paper") for name in pages.PAPERS}
REAL = {name: drift for module in MODULES.values() for name, drift in module.DRIFT.items()}
#: [value, tolerance, why] of each surrogate, by paper and name.
SURROGATES = {name: json.loads((HERE / name / "surrogates.json").read_text(encoding="utf-8")) for name in MODULES}


@cache
def jobs() -> dict[str, Job]:
    return {name: job for module in MODULES.values() for name, job in module.jobs().items()}


def number(cell: dict[str, Any], drift: Drift, other: dict[str, Any]) -> float:
    """The number that is compared: an accuracy, the end of a path, a point of a curve, or a mean of folds of both."""
    value, twin = cell[drift.key], other[drift.key]
    if "vectors" in cell and isinstance(value, list):
        return float(value[cell["vectors"].index(max({*cell["vectors"]} & {*other["vectors"]}))])
    if isinstance(value, dict):
        return float(value["accuracy"])
    if drift.key == "path":
        return float(value[-1])
    return float(np.mean(value[: len(twin)] if isinstance(value, list) else value))


@pytest.mark.skipif("MERCER_DATA" not in os.environ, reason="MERCER_DATA names no folder of data")
@pytest.mark.parametrize("name", REAL)
def test_a_real_cell_has_not_moved(name):
    drift, kept, job = REAL[name], STORE.cells[name], jobs()[name]
    found = job.function(*job.arguments, *drift.short)
    before, now = number(kept, drift, found), number(found, drift, kept)
    assert abs(now - before) <= drift.within, f"{name}: {now:.6g} instead of {before:.6g} ({drift.why})"


@pytest.mark.long
@pytest.mark.skipif("MERCER_DATA" in os.environ, reason="real cells are made again")
@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper in SURROGATES for name in SURROGATES[paper]])
def test_a_surrogate_has_not_moved(paper, name):
    value, within, why = SURROGATES[paper][name]
    found = import_module(f"papers.{paper}.surrogates").CELLS[name]()
    assert abs(found - value) <= within, f"{paper}, {name}: {found:.6g} instead of {value:.6g} ± {within:g} ({why})"


def test_every_cell_has_its_protocol_seed_commit_machine_and_code():
    for name, cell in STORE.cells.items():
        assert not [key for key in FIELDS if key not in cell and key != "cost_s"], name
        assert name.partition("/")[0] in pages.PAPERS


def test_cells_of_a_quick_run_and_of_the_drift_test_are_jobs_of_every_paper():
    for module in MODULES.values():
        assert module.DRIFT
        assert module.QUICK
        assert not {*module.QUICK, *module.DRIFT} - jobs().keys()


@pytest.mark.parametrize("paper", pages.PAPERS)
def test_a_page_is_what_the_store_gives(paper, monkeypatch):
    """Marks and their number depend on the source at hand, and are not compared: here any cell has any of them."""
    monkeypatch.setattr(Store, "mark", lambda _, name: ("", CHECKED, OLD)[len(name) % 3])
    plain = lambda text: re.sub(r" [†‡]|kept; .*", "", text)  # noqa: E731
    kept = (ROOT / "docs" / "reproduce" / f"{paper}.md").read_text(encoding="utf-8")
    made = "\n".join(pages.page(paper, STORE, pages.lines_of(paper, STORE))) + "\n"
    assert plain(kept) == plain(made), "run `python benchmarks/papers/run.py --report`"


CALLS = tomllib.loads((HERE / "calls.toml").read_text(encoding="utf-8"))["calls"]


@pytest.mark.parametrize("call", [entry[1] for entries in CALLS.values() for entry in entries])
def test_every_method_of_the_papers_has_a_public_call(call, two_folds, short_selections):
    names: dict[str, Any] = {}
    for module in ("mercer.forward.criteria", "mercer.forward.combine", "mercer.forward.stopping", "mercer.kernels"):
        names |= vars(import_module(module))
    import mercer

    names |= {name: getattr(mercer, name) for name in mercer.__all__}
    names["OneVsRestClassifier"] = import_module("sklearn.multiclass").OneVsRestClassifier
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=24)
    made = eval(call, names | {"X": X, "y": y})
    if not hasattr(made, "fit"):
        return
    # the same call, on few rows and with few steps
    model = getattr(made, "estimator", made)
    short = {"n_learners": 2, "n_basis": 4, "max_iter": 2, "n_folds": 2, "max_components": 2, "newton_steps": 2} | (
        {} if "kernel=" in call else {"kernel": names["Gaussian"](1.0)}
    )
    short |= {} if "inducing=X" in call else {"n_inducing": 4}
    short["models"] = [mercer.SparseGPClassifier(4, kernel="gaussian", ard=True, max_iter=1) for _ in range(3)]
    model.set_params(**{name: value for name, value in short.items() if name in model.get_params()})
    numbers = "Regressor" in call
    made.fit(X, y if numbers else np.where(y > 0, "a", "b"))
    found = made.predict(X) if hasattr(made, "predict") else made.transform(X)
    assert len(found) == 24
    assert not numbers or np.isfinite(found).all()


@pytest.fixture
def nothing_moved(monkeypatch):
    """A function that is gone is not looked for in all modules, which would have to be parsed."""
    monkeypatch.setattr(depends, "_modules", lambda root: [])


@pytest.mark.usefixtures("nothing_moved")
def test_a_cell_is_marked_once_a_function_that_it_called_has_changed(tmp_path):
    store, job = Store(tmp_path / "store.json"), Job(greedy_surrogates.ripley_cell, (), "printed", 3)
    store.functions[job.kind] = functions_of(job.function, job.arguments)
    called = {"benchmarks/papers/greedy02/methods.py:minima", "src/mercer/forward/absorb.py:Block.absorb"}
    assert called <= {*store.functions[job.kind]}
    store.keep("greedy02/x/3", job, {"error": 0.1}, 1.0)
    store.write()
    kept = Store.read(store.path)
    assert kept.cells["greedy02/x/3"].keys() >= set(FIELDS)
    assert not kept.is_marked("greedy02/x/3")
    kept.functions[job.kind].append("src/mercer/gone.py:f")
    assert kept.is_marked("greedy02/x/3")


def test_the_cheapest_cells_are_measured_first(tmp_path, monkeypatch):
    """One after another, in this process: what is tested is the order, and that time ends a run."""
    measured = []

    class Here:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def submit(self, function, job, trace, once):
            measured.append(job.seed)
            future: Future = Future()
            future.set_result(({}, 1.0, []))
            return future

        def shutdown(self, **_: Any) -> None: ...

    monkeypatch.setattr("papers.measure.ProcessPoolExecutor", Here)
    store = Store(tmp_path / "store.json", {f"a/{i}": {"job": "k", "cost_s": cost} for i, cost in enumerate((3, 1, 2))})
    measure(store, {f"a/{i}": Job(greedy_surrogates.ripley_cell, seed=i) for i in range(4)})
    assert measured == [1, 2, 0, 3], "the cell that is missing comes after those that are marked"
    measure(store, {"a/0": Job(greedy_surrogates.ripley_cell, seed=9)}, minutes=0.0)
    assert 9 not in measured


@pytest.mark.usefixtures("nothing_moved")
def test_a_merge_keeps_what_cells_say_of_themselves_and_no_cell_of_todays_code_is_lost():
    """Both stores saw other functions of one kind: cells of today's code stay unmarked, by the functions of both."""
    here, there = (Store(Path(), {}, {"k": [f"benchmarks/papers/{name}"]}) for name in ("judge.py:judge", "rows.py:f"))
    for store, machine, current in ((here, "a", ("x", "both", "ours")), (there, "b", ("y", "both", "theirs"))):
        for name in ("both", "ours", "theirs", *current):
            code = store.code("k") if name in current else "earlier"
            store.cells[name] = {"job": "k", "machine": machine, "commit": machine, "code": code}
    here.take(there)
    machines = {name: cell["machine"] for name, cell in here.cells.items()}
    assert machines == {"x": "a", "y": "b", "both": "b", "ours": "a", "theirs": "b"}
    assert all(cell["commit"] == cell["machine"] for cell in here.cells.values())
    assert not [name for name in here.cells if here.is_marked(name)]


def test_a_digest_sees_what_functions_do_and_name(tmp_path, monkeypatch):
    monkeypatch.setattr(depends, "ROOT", tmp_path)

    def digest_of(body: str, constant: str = "A = 1", other: str = "B = 1") -> str:
        (tmp_path / "a.py").write_text(f"{constant}\n{other}\nclass C:\n    def f(self):\n        {body}\n")
        depends._parsed.cache_clear()
        digest.cache_clear()
        return digest(("a.py:C.f",))

    before = digest_of("return A")
    assert digest_of('"""One."""\n\n        return A  # one') == digest_of("return A", other="B = 2") == before
    assert digest_of("raise ValueError(1)") == digest_of("raise ValueError(2)") != digest_of("raise TypeError(1)")
    moved = tmp_path / "src" / "mercer" / "b.py"
    moved.parent.mkdir(parents=True)
    (tmp_path / "a.py").rename(moved)
    depends._parsed.cache_clear()
    digest.cache_clear()
    assert digest(("a.py:C.f",)) == digest(("src/mercer/b.py:C.f",))
    moved.unlink()
    changed = digest_of("return A + 1"), digest_of("return A", "A = 2"), digest_of("return B")
    depends._parsed.cache_clear()
    digest.cache_clear()
    assert before not in changed


def test_a_line_has_the_worst_mark_of_the_cells_behind_it():
    from papers.rows import Claim

    about = dict.fromkeys(FIELDS, "") | {"job": "k", "code": digest(())}
    cells = {"a/1": about, "a/2": about | {"code": "older"}, "a/3": about | {"code": "earlier"}}
    store = Store(Path(), cells, {"k": []}, {"k": {"older": Again(digest(()), same=1)}})
    found = [mark(store, Claim("", "", True, "", [cells])) for cells in ("a/1", "a/2", "a/", "b/")]
    assert found == ["", CHECKED, OLD, ""]


@pytest.mark.usefixtures("nothing_moved")
def test_cells_of_earlier_code_are_checked_once_one_of_them_came_out_the_same():
    """By the code of each step from theirs to today's; a cell that came out otherwise undoes it. Times do not count."""
    today = digest(())
    cell = lambda code, error, job="k": {"job": job, "code": code, "error": error, "fit_s": len(code)}  # noqa: E731
    kept = {"x/1": cell("a", 0.5), "x/2": cell("a", 0.25), "x/3": cell("b", 0.5), "x/4": cell("a", 0.5, "other")}
    store = Store(Path(), kept, {"k": [], "other": []})
    jobs = {name: SimpleNamespace(kind="k") for name in kept}
    assert {*cheapest_of_each_change(store, jobs)} == {"x/1", "x/3"}  # a cell of each code; one of another function
    store.compare(kept["x/1"], cell("b", 0.5))
    assert store.mark("x/2") == OLD  # b is not today's
    assert {*cheapest_of_each_change(store, jobs)} == {"x/3"}  # b stands for a as well
    store.compare(kept["x/3"], cell(today, 0.5 + 1e-9))
    assert [store.mark(name) for name in kept] == [CHECKED, CHECKED, CHECKED, OLD]
    there = Store(Path(), {"x/9": cell(today, 1.0)}, {"k": ["src/mercer/gone.py:f"], "other": []})
    there.cells["x/9"]["code"] = there.code("k")
    store.take(there)  # cells of both are of today's code by more functions, and so are the steps
    assert store.mark("x/2") == CHECKED
    store.compare(kept["x/2"], cell(store.code("k"), 0.3))
    assert [store.mark(name) for name in ("x/1", "x/2", "x/3")] == [OLD, OLD, CHECKED]


@pytest.mark.parametrize("C", [1.0, 100.0, 10_000.0])
def test_the_core_vector_machine_finds_the_ball_that_least_squares_finds(C):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.sign(rng.normal(size=200))
    H = y[:, None] * (np.exp(-((X[:, None] - X) ** 2).sum(-1)) + 1) * y + np.eye(200) / C
    L = np.linalg.cholesky(H)  # ½βᵀHβ − Σβ is ½‖Lᵀβ − L⁻¹1‖² and a constant
    expected, _ = nnls(L.T, np.linalg.solve(L, np.ones(200)), maxiter=2000)
    found = nonnegative_minimum(torch.from_numpy(H), torch.zeros(200, dtype=torch.float64), C).numpy()
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
    decide = svm_2k(K, y, (C, 1e-6, (0, 1)))
    expected, allowed = np.zeros(150), 0.0
    for view in K + 1:
        L = np.linalg.cholesky(y[:, None] * view * y + 1e-9 * np.eye(150))
        alpha = lsq_linear(L.T, np.linalg.solve(L, np.ones(150)), (0, C), tol=1e-12).x
        f = view @ (alpha * y)
        objective = (alpha * y) @ f / 2 + C * np.maximum(1 - y * f, 0).sum()
        expected, allowed = expected + f / 2, allowed + np.sqrt(2 * 1e-4 * 2 * objective * 2) / 2
    assert abs(decide(K) - expected).max() <= 2 * allowed


def judged(*runs: float, printed: float, **options: object) -> tuple[float, str]:
    verdict = judge(runs, printed, **options)
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
