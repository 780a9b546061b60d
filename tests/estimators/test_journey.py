"""What a new user tries first: the README, other tools around an estimator, slips, and little memory."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.linear_model import Ridge
from sklearn.model_selection import learning_curve

import mercer
from mercer.kernels import Gaussian
from mercer.selection import kernel_choice as tuning

pytestmark = pytest.mark.usefixtures("two_folds")

FIXED: dict[str, Any] = {"kernel": Gaussian(1.5), "regularization": 0.1, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (60, 3))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


class WithoutPandas:
    """An importer for machines that have no pandas."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] == "pandas":
            raise ImportError("there is no pandas")


def test_the_first_example_needs_no_network_and_no_pandas(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)
    assert code is not None
    quick = code.group(1).replace("make_friedman1(2000, 10", "make_friedman1(80, 5")
    assert quick != code.group(1)

    def offline(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", offline)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutPandas(), *sys.meta_path])
    monkeypatch.chdir(tmp_path)
    told: dict[str, Any] = {}
    exec(compile(quick, "README.md", "exec"), told)
    assert told["model"].score(told["X_train"], told["y_train"]) > 0.5
    assert (tmp_path / "report.html").stat().st_size > 1000


BOOSTING, GREEDY = mercer.KernelBoostingRegressor(**FIXED), mercer.GreedyKernelRegressor(30, **FIXED)
RELEVANT = mercer.SparseGPRegressor(8, kernel="gaussian", max_iter=15, ard=True, random_state=0)
FRIENDS = {
    "stacking": StackingRegressor([("ours", BOOSTING), ("theirs", Ridge())], cv=3),
    "voting": VotingRegressor([("ours", BOOSTING), ("theirs", Ridge())]),
    "bagging": BaggingRegressor(GREEDY, n_estimators=3, random_state=0),
    "transformed targets": TransformedTargetRegressor(BOOSTING, func=np.sinh, inverse_func=np.arcsinh),
}


@pytest.mark.parametrize("name", FRIENDS)
def test_an_estimator_works_inside_other_estimators(name):
    assert FRIENDS[name].fit(X, Y).score(X, Y) > 0.05 + Ridge().fit(X, Y).score(X, Y)


def test_inputs_are_selected_by_relevance():
    for select in (
        SelectFromModel(RELEVANT, max_features=2, threshold=-np.inf),
        RFE(RELEVANT, n_features_to_select=2, importance_getter="relevance_"),
    ):
        assert select.fit(X, Y).get_support().tolist() == [True, True, False]


def test_importances_are_relevances_of_sum_one_and_there_once_fitted():
    assert not hasattr(mercer.KernelBoostingRegressor(), "feature_importances_")
    assert not hasattr(mercer.NRBFRegressor(3, random_state=0).fit(X, Y), "feature_importances_")
    model = mercer.SparseGPClassifier(5, max_iter=2, kernel="gaussian", random_state=0).fit(
        X, np.digitize(Y, [-0.5, 0.5])
    )
    assert model.relevance_.shape == (3, 3)
    assert model.feature_importances_.shape == (3,)
    assert model.feature_importances_.sum() == pytest.approx(1.0)


def test_a_learning_curve_rises():
    _, _, scores = learning_curve(BOOSTING, X, Y, train_sizes=[0.2, 1.0], cv=3, shuffle=True, random_state=0)
    assert scores[1].mean() > scores[0].mean()


@pytest.mark.parametrize("face", [mercer.KernelBoostingRegressor, mercer.NRBFClassifier, mercer.SparseGPRegressor])
def test_an_argument_of_another_library_is_refused_by_the_class_that_was_called(face):
    with pytest.raises(TypeError, match=rf"{face.__name__}.*n_estimators"):
        face(n_estimators=100)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"criterion": "mpp"}, "criterion must be one of"), ({"kernel": Gaussian}, "such as Gaussian"),
     ({"memory_limit": "4 apples"}, "memory_limit")],
)  # fmt: skip
def test_a_slip_is_found_before_anything_is_tuned(options, words, monkeypatch):
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the kernel was tuned first")

    monkeypatch.setattr(tuning, "tune_kernel", never)
    with pytest.raises(ValueError, match=words):
        mercer.GreedyKernelRegressor(**{"kernel": "gaussian"} | options).fit(X, Y)


GROWTH = """
from pathlib import Path
import numpy as np
from mercer import KernelBoostingRegressor

def pages(key):
    return 1024 * int(Path("/proc/self/status").read_text().partition(key + ":")[2].split()[0])

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5))
y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=2000)
KernelBoostingRegressor(n_learners=2, random_state=0).fit(X[:60], y[:60])  # libraries are loaded
before = pages("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
KernelBoostingRegressor(n_learners=3, random_state=0, memory_limit="32MiB").fit(X, y)
print(pages("VmHWM") - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory cannot be reset here")
def test_the_selection_of_a_kernel_keeps_to_the_memory():
    """The selection took 440 MiB of these rows, whatever the limit."""
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}  # freed blocks are given back
    ran = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, timeout=600, env=env)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) <= 1.1 * (32 << 20)  # the bound of benchmarks/speed/memory.py


def test_probabilities_of_many_rows_keep_to_the_memory():
    """The peak of the process, which Linux counts anew on demand."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        pytest.skip("the peak of memory cannot be reset here")

    def pages(key: str) -> int:
        return 1024 * int(re.search(rf"{key}:\s+(\d+)", status.read_text()).group(1))

    limit, n = 16 << 20, 400_000
    model = mercer.KernelBoostingClassifier(2, learner_size=10, **FIXED, memory_limit=limit)
    model.fit(X, np.digitize(Y, [-0.5, 0.5])).predict_proba(X)
    many = np.tile(X, (n // len(X) + 1, 1))[:n]
    before = pages("VmRSS")
    reset.write_text("5")
    answer = model.predict_proba(many)
    # beside the answer: values and probabilities of all rows, one of each, and pages that allocators hold back
    assert pages("VmHWM") - before < limit + 3 * answer.nbytes + (16 << 20)
