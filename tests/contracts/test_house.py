"""The house, counted: how deep estimators inherit, how far `fit` is from its algorithm, how long files are."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, is_classifier

import mercer
from mercer.empirical.training import fit_member
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import optimise
from mercer.forward.loop import ForwardFit
from mercer.kernels import Gaussian
from mercer.mixture.closed_form import GateSearch
from mercer.mixture.fit import fit_classes, fit_mixture
from mercer.selection.view import tile

SOURCE = Path(mercer.__file__).parent
ESTIMATORS = [face for name in mercer.__all__ if isinstance(face := getattr(mercer, name), type)]
#: Where an algorithm begins; those that are no function of their own module begin in `fit` itself.
ALGORITHMS = {
    function.__code__
    for function in (ForwardFit.run, climb, optimise, fit_mixture, fit_classes, GateSearch.best, fit_member)
}
WITHOUT = {"ARDSelector", "EmpiricalKernelMap", "GradientMetric"}


def depth(kind: type) -> int:
    """Classes of ours on the longest way from a class to scikit-learn's `BaseEstimator`, itself counted."""
    below = [depth(base) for base in kind.__bases__ if issubclass(base, BaseEstimator) and base is not BaseEstimator]
    return 1 + max(below, default=0)


@pytest.mark.parametrize("face", ESTIMATORS, ids=lambda face: face.__name__)
def test_an_estimator_is_at_most_four_classes_deep(face):
    assert depth(face) <= 4


class Arrived(BaseException):
    """The algorithm was called; nobody on the way may catch it."""


def hops(model: Any, X: np.ndarray, y: np.ndarray, ends: set[CodeType]) -> list[str]:
    """The functions of ours that are open when an algorithm is first called, from `fit` on, it counted."""
    found: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code not in ends:
            return
        sys.setprofile(None)
        at: FrameType | None = frame
        while at is not None and at.f_back is not None and "fit" not in found:
            comprehension = at.f_code.co_name.startswith("<")
            if at.f_code.co_filename.startswith(str(SOURCE)) and not comprehension:
                found.append(at.f_code.co_name)
            at = at.f_back
        raise Arrived

    sys.setprofile(watch)
    try:
        model.fit(X, y)
    except Arrived:
        pass
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("face", [one for one in ESTIMATORS if one.__name__ not in WITHOUT], ids=lambda f: f.__name__)
def test_from_fit_to_its_algorithm_there_are_at_most_eight_hops(face):
    X = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    y = np.sin(X[:, 0])
    given = {"kernel": Gaussian(), "regularization": 0.1, "n_components": 2}
    model = face(**{key: value for key, value in given.items() if key in inspect.signature(face).parameters})
    way = hops(model, X, (y > 0).astype(int) if is_classifier(model) else y, ALGORITHMS)
    assert way, "none of the algorithms was called"
    assert way[-1] == "fit"
    assert len(way) - 1 <= 8, way


def test_a_default_fit_reaches_its_first_kernel_matrix_in_twelve_frames():
    """On one thread, from the wrapper of `fit` to the kernel of the first stage of the selection.

    Targets are mostly noise: for smooth ones a search for smooth kernels follows, which makes many calls.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.sin(X[:, 0]) + rng.normal(size=300)
    frames: list[int] = []
    files: set[str] = set()
    n_calls = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal n_calls
        if event != "call" or not frame.f_code.co_filename.startswith(str(SOURCE)):
            return
        n_calls += 1
        files.add(frame.f_code.co_filename)
        if frame.f_code is tile.__code__ and not frames:
            depth, caller = 0, frame
            while caller is not None:
                depth += caller.f_code.co_filename.startswith(str(SOURCE))
                caller = caller.f_back
            frames.append(depth)
        if frame.f_code is ForwardFit.run.__code__:
            sys.setprofile(None)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = mercer.KernelBoostingRegressor(random_state=0)
    sys.setprofile(profile)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
        torch.set_num_threads(threads)
    assert frames[0] <= 12
    assert n_calls <= 6000
    assert len(files) <= 35


def test_no_file_is_longer_than_500_lines():
    long = {path.name: n for path in SOURCE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 500}
    assert not long


def test_a_class_has_a_name_of_its_own():
    places: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_random_numbers_come_from_a_generator():
    old = re.compile(r"rng: Any|rng: .*RandomState|rng = check_random_state")
    assert not [str(path) for path in SOURCE.rglob("*.py") if old.search(path.read_text())]
