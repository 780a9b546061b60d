"""One case, told by (name, seed): draw a problem and settings, fit, and judge what comes out."""

from __future__ import annotations

import copy
import inspect
import pickle
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

import mercer

from . import settings
from .containers import contain
from .files import broken_file_case
from .judge import OURS, faults_of_answer, is_sentence, told, worse_than_constant
from .problems import Problem, odd_problem, plain_problem, spoiled

NAMES = (*(name for name in mercer.__all__ if name not in settings.OF_MODELS), "files")
#: Functions of a fitted model.
EXPLAINING = ("partial_effects", "shapley_values")
KINDS = {"plain": 0.2, "odd": 0.15, "legal": 0.2, "hostile": 0.25, "interrupted": 0.1, "refitted": 0.1}


class Bomb(Exception):
    """Raised by a callback in the middle of a fit."""


@dataclass
class Outcome:
    """How a case ended: answered, refused in a sentence, or with faults (each 'kind: detail')."""

    name: str
    seed: int
    kind: str = ""
    ended: str = "answered"
    faults: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    seconds: float = field(default=0.0, compare=False)


def run(name: str, seed: int) -> Outcome:
    """Run one case; never raises but for the harness's own mistakes."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    outcome, began = Outcome(name, seed), time.process_time()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            if name == "files":
                outcome.kind = "file"
                broken_file_case(rng, Path(folder), outcome.story)
            elif name == "one_standard_error":
                outcome.kind = "function"
                _one_standard_error(rng, outcome)
            elif name in EXPLAINING:
                outcome.kind = "function"
                _explained(name, rng, Path(folder), outcome)
            else:
                outcome.kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
                _CASES[outcome.kind](name, rng, Path(folder), outcome)
        except Exception as error:
            if is_sentence(error):
                outcome.ended = f"refused: {told(error)}"
                if outcome.kind == "plain":
                    outcome.faults.append(f"refused-plain: {told(error)}")
            else:
                outcome.ended = "failed"
                outcome.faults.append(f"raw-{told(error)}")
    if any("next to nothing to learn" in str(warning.message) for warning in said):
        outcome.faults = [fault for fault in outcome.faults if not fault.startswith("worse-than-constant")]
    outcome.faults += sorted({fault for warning in said if (fault := _fault_of_warning(warning))})
    outcome.seconds = time.process_time() - began
    return outcome


def _fault_of_warning(warning: Any) -> str | None:
    """Warnings that we or scikit-learn word are part of the answer; a raw one tells of numbers out of hand."""
    if issubclass(warning.category, ConvergenceWarning | DataConversionWarning):
        return None
    raw = issubclass(warning.category, RuntimeWarning) or any(
        f"/site-packages/{library}/" in warning.filename for library in ("numpy", "torch", "scipy", "pandas", "polars")
    )
    ours = warning.filename.startswith(OURS) and issubclass(warning.category, RuntimeWarning)
    place = f"{Path(warning.filename).name}:{warning.lineno}"
    return f"raw-warning: {str(warning.message)[:120]} @ {place}" if raw or ours else None


def _problem(name: str, rng: np.random.Generator, draw: Callable[..., Problem]) -> Problem:
    face = getattr(mercer, name)
    classes = isinstance(face, type) and is_classifier(face())
    return draw(rng, classes)


def _made(name: str, chosen: dict[str, Any], rng: np.random.Generator) -> Any:
    return getattr(mercer, name)(**chosen, random_state=int(rng.integers(1000)))


def _fit(model: Any, table: Any, problem: Problem) -> Any:
    if problem.weight is None:
        return model.fit(table, problem.y)
    return model.fit(table, problem.y, sample_weight=problem.weight)


def _answer(
    name: str,
    rng: np.random.Generator,
    folder: Path,
    outcome: Outcome,
    problem: Problem,
    chosen: dict[str, Any],
    hostile: bool = False,
) -> tuple[Any, Any]:
    """Fit in a container drawn at random and judge; returns the model and the table it was given."""
    kind, table = contain(problem.X, rng, folder, hostile)
    outcome.story += [*problem.story, f"as {kind}", f"{chosen}"]
    before = copy.deepcopy((problem.X, problem.y, problem.weight))
    if name in ("tune_kernel", "select_basis"):
        _function(name, rng, outcome, problem, table, chosen)
        return None, table
    model = _fit(_made(name, chosen, rng), table, problem)
    outcome.faults += faults_of_answer(model, table, len(problem.X), problem.X)
    for was, now in zip(before, (problem.X, problem.y, problem.weight), strict=True):
        if isinstance(was, np.ndarray) and was.tobytes() != now.tobytes() and was.dtype != object:
            outcome.faults.append("changed: fit changed its input")
    return model, table


def _function(name: str, rng: Any, outcome: Outcome, problem: Problem, table: Any, chosen: dict[str, Any]) -> None:
    seed = {"random_state": int(rng.integers(1000))}
    if name == "tune_kernel":
        tuned = mercer.tune_kernel(table, problem.y, sample_weight=problem.weight, **chosen, **seed)
        numbers = [tuned.noise, tuned.log_marginal_likelihood, *tuned.kernel.tunable().values()]
        if not all(np.isfinite(np.asarray(number)).all() for number in numbers):
            outcome.faults.append(f"not-finite: {tuned}")
    else:
        rows = mercer.select_basis(table, problem.y, **chosen, **seed)
        if len(set(rows.tolist())) != len(rows) or rows.min(initial=0) < 0 or rows.max(initial=0) >= len(problem.X):
            outcome.faults.append(f"no-rows: {rows[:5]}")


def _plain(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    problem = _problem(name, rng, plain_problem)
    _judged(name, rng, folder, outcome, problem, settings.default_like(name, rng))


def _odd(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    problem = _problem(name, rng, odd_problem)
    _judged(name, rng, folder, outcome, problem, settings.default_like(name, rng))


def _judged(name: str, rng: Any, folder: Path, outcome: Outcome, problem: Problem, chosen: dict[str, Any]) -> None:
    model, table = _answer(name, rng, folder, outcome, problem, chosen)
    if hasattr(model, "predict") and not outcome.faults:
        if fault := worse_than_constant(model, table, problem.y, problem.weight):
            outcome.faults.append(fault)
        again = pickle.loads(pickle.dumps(model))
        if not np.array_equal(model.predict(table), again.predict(table)):
            outcome.faults.append("pickled: a pickled model answers otherwise")


def _legal(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    problem = _problem(name, rng, odd_problem if rng.random() < 0.5 else plain_problem)
    _answer(name, rng, folder, outcome, problem, settings.legal(name, rng))


def _hostile(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    """One thing is wrong: a setting, the problem, or what it is contained in."""
    problem, chosen = _problem(name, rng, plain_problem), settings.default_like(name, rng)
    which = rng.integers(3)
    if which == 0:
        chosen = settings.hostile(name, rng)
    elif which == 1:
        problem = spoiled(problem, rng)
    _answer(name, rng, folder, outcome, problem, chosen, hostile=which == 2)


def _interrupted(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    """A fit that a callback breaks leaves the old model whole, or none; Ctrl-C may leave the model so far."""
    problem, other = (_problem(name, rng, plain_problem) for _ in range(2))
    chosen = settings.default_like(name, rng)
    if "callbacks" not in inspect.signature(getattr(mercer, name)).parameters:
        return _plain(name, rng, folder, outcome)
    model = _made(name, chosen, rng)
    method = "predict" if hasattr(model, "predict") else "transform"
    before = getattr(_fit(model, problem.X, problem), method)(problem.X) if rng.random() < 0.5 else None
    left, raised = max(int(rng.integers(-3, 4)), 0), Bomb if rng.random() < 0.7 else KeyboardInterrupt
    outcome.story += [*other.story, f"{raised.__name__} after {left} calls, fitted before: {before is not None}"]

    def bomb(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise raised

    model.set_params(callbacks=[bomb])
    try:
        _fit(model, other.X, other)
    except (Bomb, KeyboardInterrupt):
        if raised is KeyboardInterrupt and "interrupted" in getattr(model, "stop_reason_", ""):
            outcome.faults += faults_of_answer(model, other.X, len(other.X), other.X)
            return None
        try:
            after = getattr(model, method)(problem.X)
        except NotFittedError:
            return None
        if before is None or not np.array_equal(before, after):
            outcome.faults.append("chimera: an interrupted fit left a model that was never fitted")
    else:
        outcome.faults += faults_of_answer(model, other.X, len(other.X), other.X)
    return None


def _refitted(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    """A second fit forgets the first one altogether."""
    first, second = (_problem(name, rng, plain_problem) for _ in range(2))
    chosen = settings.default_like(name, rng)
    outcome.story += [*first.story, "then", *second.story, f"{chosen}"]
    if not isinstance(getattr(mercer, name), type):
        return _plain(name, rng, folder, outcome)
    model = _fit(_made(name, chosen, rng), first.X, first)
    _fit(model, second.X, second)
    fresh = _fit(clone(model), second.X, second)
    method = "predict" if hasattr(model, "predict") else "transform"
    if not np.array_equal(getattr(model, method)(second.X), getattr(fresh, method)(second.X)):
        outcome.faults.append("memory: a second fit depends on the first")
    return None


def _one_standard_error(rng: np.random.Generator, outcome: Outcome) -> None:
    n, folds = int(rng.integers(1, 6)), int(rng.integers(0, 5))
    results: dict[str, Any] = {f"split{k}_test_score": rng.normal(size=n) for k in range(folds)}
    if rng.random() < 0.8:
        results["param_size"] = np.arange(n) if rng.random() < 0.7 else ["oak"] * n
    if rng.random() < 0.3 and folds:
        results["split0_test_score"] = np.where(rng.random(n) < 0.5, np.nan, 0.5)
    parameter = [None, "size", "absent", 3][int(rng.integers(4))]
    outcome.story += [f"{results}", f"{parameter}"]
    chosen = mercer.one_standard_error(results, parameter)
    if not 0 <= chosen < n:
        outcome.faults.append(f"no-candidate: {chosen} of {n}")


def _explained(name: str, rng: np.random.Generator, folder: Path, outcome: Outcome) -> None:
    """A fitted model of any kind, and any rows to explain."""
    family = str(rng.choice([one for one in mercer.__all__ if hasattr(getattr(mercer, one), "predict")]))
    problem = _problem(family, rng, plain_problem if rng.random() < 0.5 else odd_problem)
    chosen = settings.default_like(family, rng) | ({"kernel": "gaussian"} if rng.random() < 0.5 else {})
    chosen = {key: value for key, value in chosen.items() if key in settings.parameters(family)}
    model = _fit(_made(family, chosen, rng), problem.X, problem)
    kind, table = contain(problem.X, rng, folder, rng.random() < 0.2)
    outcome.story += [family, *problem.story, f"as {kind}", f"{chosen}"]
    if name == "shapley_values":
        background = ("training", None, table)[int(rng.integers(3))]
        numbers = mercer.shapley_values(model, table, background).values
    else:
        column = [0, [0, problem.X.shape[1] - 1], "oak", -1, 0][int(rng.integers(5))]
        numbers = mercer.partial_effects(model, table, column, grid_size=3).values
    if not np.isfinite(numbers).all():
        outcome.faults.append(f"not-finite: {numbers.ravel()[:3]}")


_CASES = {
    "plain": _plain,
    "odd": _odd,
    "legal": _legal,
    "hostile": _hostile,
    "interrupted": _interrupted,
    "refitted": _refitted,
}
