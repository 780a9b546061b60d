"""A few cases for every public name in each test run; ``make fuzz`` runs thousands.

A case that fails here is repeated by ``python -m tests.fuzz --replay NAME SEED``.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import mercer
from mercer.parts import require

from . import settings
from .cases import NAMES, Outcome, run
from .judge import is_sentence
from .problems import FAULTS, odd_problem, plain_problem, spoiled
from .runner import Worker

N_CASES = 4
#: Fewer of names whose cases are models of several classes, model selections or many steps of a search.
SLOW = dict.fromkeys(["ARDSelector", "KernelBoostingClassifier", "KernelBoostingRegressor", "SparseGPClassifier"], 2)
SLOW |= dict.fromkeys(["GreedyNystroem", "MHKSClassifier", "MultiKernelMHKSClassifier", "shapley_values"], 2)
SLOW |= dict.fromkeys(["ENRBFClassifier", "RPEMEKLClassifier", "RPEMEKLRegressor", "SparseGPRegressor"], 2)
SLOW |= dict.fromkeys(["GreedyKernelClassifier", "GreedyKernelRegressor", "partial_effects", "select_basis"], 1)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_case_ends_in_a_finite_answer_or_a_sentence(name, short_selections, two_folds):
    outcomes = [run(name, 100 + k) for k in range(SLOW.get(name, N_CASES))]
    found = [f"{case.name} {case.seed} ({case.kind}) {case.faults} {case.story}" for case in outcomes if case.faults]
    assert not found, "\n".join(found)


# The harness itself


def caught(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_somebody_wrote_is_a_sentence_and_what_a_library_says_is_not():
    assert is_sentence(caught(require, False, "n", "positive", -1))
    assert is_sentence(caught(mercer.KernelBoostingRegressor().fit, [[1.0]], [np.nan]))
    assert not is_sentence(caught(float, "oak"))
    assert not is_sentence(caught(require))  # a TypeError of Python's own, on the way into our code
    assert not is_sentence(caught(mercer.one_standard_error, 3))  # the same, inside it


def test_a_case_is_repeated_by_its_name_and_seed():
    assert run("NRBFRegressor", 3) == run("NRBFRegressor", 3)


def test_every_fault_can_be_drawn_and_leaves_the_problem_as_it_was():
    seen = set()
    for seed in range(300):
        rng = np.random.default_rng(seed)
        problem = plain_problem(rng, classes=bool(seed % 2))
        before = problem.X.copy()
        seen.add(spoiled(problem, rng).story[-1])
        np.testing.assert_array_equal(problem.X, before)
    assert seen == set(FAULTS)


def test_odd_problems_are_finite():
    for seed in range(100):
        problem = odd_problem(np.random.default_rng(seed), classes=False)
        assert np.isfinite(problem.X).all()
        assert np.isfinite(np.asarray(problem.y, dtype=float)).all()


def test_legal_values_are_listed_for_every_parameter():
    assert settings.unknown() == []


#: A process that answers as the real one does, which would take seconds to start: it sleeps or dies on demand.
ACTOR = """
import json, sys, time
print("ready", flush=True)
for line in sys.stdin:
    name, seed = line.split()
    time.sleep(60 * (name == "sleep"))
    assert name != "die"
    print(json.dumps({"name": name, "seed": int(seed)}), flush=True)
"""


@pytest.mark.long
def test_a_process_that_dies_or_hangs_is_a_fault_and_the_next_case_runs():
    worker = Worker(limit=0.2, command=(sys.executable, "-c", ACTOR))
    try:
        assert "hang" in worker.run(("sleep", 0)).faults[0]
        worker.limit = 60
        assert worker.run(("speak", 3)) == Outcome("speak", 3)
        assert "crash" in worker.run(("die", 0)).faults[0]
        assert worker.run(("speak", 4)).faults == []
    finally:
        worker.stop()
