"""Growth, cost and repetition of a fit: error against basis vectors and seconds, time by stage, versions and seed."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from mercer.doctor import PACKAGES, installed
from mercer.reporting.baselines import error_of
from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Figure, Line, chart, short

#: Test rows, and steps, of the curve of test errors.
CURVE_ROWS, CURVE_STEPS = 2000, 60


def growth_section(subject: Subject) -> Section | None:
    """The test error after each step of a forward fit; for a mixture, its likelihood."""
    path = getattr(subject.estimator, "log_likelihood_path_", None)
    if path is not None and len(path) > 1:
        return _likelihood(np.asarray(path))
    history = getattr(subject.estimator, "history_", None)
    if history is None:
        return None
    # The history is that of the first kernel.
    n_steps = min(int(subject.estimator.n_steps_), len(history["n_basis"]))
    size, seconds = np.asarray(history["n_basis"])[:n_steps], np.asarray(history["seconds"])[:n_steps]
    if n_steps < 2 or subject.inner_table is not subject.table:
        return _one_step(subject.estimator, size)
    if not hasattr(subject.estimator, "_stages"):
        words = [
            f"{size[-1]} basis vectors came in {n_steps} steps. The file does not tell how good the model was after "
            "each of them; one saved with stages=True (mercer fit --stages) does."
        ]
        return _growth(words, {"n_basis": size, "seconds": seconds})
    return _error_curve(subject, size, seconds + float(getattr(subject.estimator, "tuning_seconds_", 0.0)))


def _one_step(model: Any, size: np.ndarray) -> Section:
    """A fit of one step, and the sizes to which it could have been compressed."""
    words, path = [f"All {size[-1]} basis vectors came in one step."], getattr(model, "compression_path_", None)
    if path is None or len(path["n_basis"]) < 2:
        return _growth(words, {"n_basis": size})
    words.append(f"Compression: {model.compression_reason_}.")
    sizes, rises = np.asarray(path["n_basis"]), 100 * np.asarray(path["rise"])
    kept, allowed = sum(len(part.basis) for part in model.expansions_), 100 * getattr(model, "compression_tol", 0.01)
    caption = f"Rise of the error by fewer basis vectors, at most, in %; {kept} basis vectors were kept."
    marks = [Line(sizes, rises, "bound", 0, dots=True)]
    marks.append(Line(sizes[[0, -1]], np.array([allowed, allowed]), "tolerance", dashed=True))
    figure = chart(marks, "basis vectors", "rise of the error (%)", caption, log="xy")
    return _growth(words, {"n_basis": size, "compression": path}, [figure])


def _growth(words: list[str], numbers: dict[str, Any], figures: Sequence[Figure] = ()) -> Section:
    return Section("growth", "How it grew", words, numbers, figures=figures)


def _likelihood(path: np.ndarray) -> Section:
    """The log-likelihood over the iterations of EM."""
    ends = f"from {short(path[0])} to {short(path[-1])}"
    caption = f"Log-likelihood a row over {len(path) - 1} iterations of EM, {ends}."
    figure = chart([Line(np.arange(len(path)), path, colour=0)], "iteration", "log-likelihood a row", caption)
    return _growth([], {"log_likelihood": path}, [figure])


def _error_curve(subject: Subject, size: np.ndarray, time: np.ndarray) -> Section:
    """The test error against basis vectors and against seconds."""
    sample = subject.sample(CURVE_ROWS)
    steps = np.unique(np.linspace(1, len(size), CURVE_STEPS).astype(int))
    staged = enumerate(subject.estimator.staged_predict(sample.table.X), 1)
    wanted = set(steps.tolist())
    errors = [error_of(sample, np.asarray(values), None)["error"] for step, values in staged if step in wanted]
    size_then, time_then = size[steps - 1], time[steps - 1]
    last = error_of(sample, sample.predicted, None)["error"]
    unit = "share of wrong classes" if subject.classes is not None else "RMSE"
    log = "xy" if min(*errors, last) > 0 else "x"
    figures = []
    for across, name in ((size_then, "basis vectors"), (time_then, "seconds, tuning included")):
        ends = f"from {short(errors[0])} to {short(errors[-1])}, {short(last)} at the end"
        caption = f"Test error ({unit}) against {name}: {ends}."
        marks = [Line(across, np.asarray(errors), "while growing", 0, dots=True)]
        marks.append(Line(across[[0, -1]], np.array([last, last]), "final model", dashed=True))
        figures.append(chart(marks, name, f"test error ({unit})", caption, log=log))
    numbers = {"n_basis": size_then, "seconds": time_then, "test_error": errors, "final_error": last}
    words = []
    enough = int(np.argmax(np.asarray(errors) <= errors[-1] * 1.05))
    if enough < len(errors) - 1:
        words.append(f"{size_then[enough]} of {size[-1]} basis vectors have an error within 5 % of the last one's.")
    return _growth(words, numbers, figures)


def cost_section(subject: Subject) -> Section:
    """Seconds by stage, size of the model and time of a prediction."""
    model = subject.estimator
    stages: dict[str, float] = {}
    if hasattr(model, "tuning_seconds_"):
        stages["tuning: columns, metric, kernel, penalty"] = float(model.tuning_seconds_)
    history = getattr(model, "history_", None)
    if history is not None:
        stages["growing and solving, last step"] = float(np.asarray(history["seconds"])[-1])
    rows = subject.table.n_rows
    stages[f"predicting {rows} test rows"] = subject.timed[1]
    size = sum(array.nbytes for array in _arrays(model))
    per_row = subject.timed[1] / rows * 1e6
    words = [
        f"The model holds {short(size / 1e6)} MB of numbers and takes {short(per_row)} µs a row to predict them all."
    ]
    table = Grid("Seconds by stage", ["stage", "seconds"], [[name, value] for name, value in stages.items()])
    numbers = {"seconds": stages, "model_bytes": size, "microseconds_a_row": per_row}
    return Section("cost", "What it cost", words, numbers, [table])


def _arrays(model: Any) -> list[np.ndarray]:
    """Arrays without which there is no prediction."""
    expansions = getattr(model, "expansions_", ())
    if expansions:
        return [np.asarray(array) for part in expansions for array in (part.basis, part.weights)]
    return [value for name, value in vars(model).items() if isinstance(value, np.ndarray) and not name.startswith("_")]


def repeat_section(subject: Subject) -> Section:
    """Versions, settings and seed."""
    versions = {"Python": sys.version.split()[0], "machine": f"{platform.system()} {platform.machine()}"}
    versions |= {name: installed(name) for name in (*PACKAGES, "pandas")}
    seed = getattr(subject.estimator, "random_state", None)
    settings = repr(subject.model)
    digest = subject.table.digest()
    words = [
        f"Settings: {settings}",
        f"Seed: {seed}." if seed is not None else "No seed was given: random_state=0 would make the fit repeatable.",
        f"The test rows have the hash {digest}.",
    ]
    table = Grid("Versions", ["package", "version"], [[name, version] for name, version in versions.items()])
    numbers = {"settings": settings, "random_state": seed, "versions": versions, "test_rows_hash": digest}
    return Section("repeat", "To repeat it", words, numbers, [table])
