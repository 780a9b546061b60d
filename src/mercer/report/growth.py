"""How the fit went: error against basis vectors and seconds, where the time went, and what would repeat it."""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np

from mercer.doctor import installed
from mercer.report.baselines import error_of
from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import Line, chart, short

#: Test rows, and steps, of the curve of test errors.
CURVE_ROWS, CURVE_STEPS = 2000, 60
PACKAGES = ("mercer", "numpy", "scipy", "scikit-learn", "torch", "pandas")


def growth_section(subject: Subject) -> Section | None:
    """Test error after each step of a forward fit; of a mixture, its likelihood."""
    path = getattr(subject.final, "log_likelihood_path_", None)
    if path is not None and len(path) > 1:
        steps = np.arange(len(path))
        says = (
            f"Log-likelihood a row over {len(path) - 1} iterations of EM, from {short(path[0])} to {short(path[-1])}."
        )
        drawn = chart([Line(steps, np.asarray(path), colour=0)], "iteration", "log-likelihood a row", says)
        return Section("growth", "How it grew", [], {"log_likelihood": path}, figures=[Figure(drawn, says)])
    history = getattr(subject.final, "history_", None)
    if history is None:
        return None
    n_steps = min(int(subject.final.n_steps_), len(history["n_basis"]))  # of the first kernel, whose history this is
    size, seconds = np.asarray(history["n_basis"])[:n_steps], np.asarray(history["seconds"])[:n_steps]
    if n_steps < 2 or subject.seen is not subject.table:
        return Section("growth", "How it grew", [f"All {size[-1]} basis vectors came in one step."], {"n_basis": size})
    if not hasattr(subject.final, "_stages"):
        words = [
            f"{size[-1]} basis vectors came in {n_steps} steps. The file does not tell how good the model was after "
            "each of them; one saved with stages=True (mercer fit --stages) does."
        ]
        return Section("growth", "How it grew", words, {"n_basis": size, "seconds": seconds})
    few = subject.few(CURVE_ROWS)
    wanted = set(np.unique(np.linspace(1, n_steps, CURVE_STEPS).astype(int)))
    errors = [
        error_of(few, np.asarray(answer), None)["error"]
        for step, answer in enumerate(subject.final.staged_predict(few.table.X), 1)
        if step in wanted
    ]
    at = np.asarray(sorted(wanted)) - 1
    time = seconds + float(getattr(subject.final, "tuning_seconds_", 0.0))
    unit = "share of wrong classes" if subject.classes is not None else "RMSE"
    last = error_of(few, few.predicted, None)["error"]
    logarithmic = "xy" if min(*errors, last) > 0 else "x"
    figures = []
    for across, name in ((size[at], "basis vectors"), (time[at], "seconds, tuning included")):
        ends = f"from {short(errors[0])} to {short(errors[-1])}, {short(last)} at the end"
        says = f"Test error ({unit}) against {name}: {ends}."
        marks = [Line(across, np.asarray(errors), "while growing", 0, dots=True)]
        marks.append(Line(across[[0, -1]], np.array([last, last]), "final model", dashed=True))
        figures.append(Figure(chart(marks, name, f"test error ({unit})", says, log=logarithmic), says))
    numbers = {"n_basis": size[at], "seconds": time[at], "test_error": errors, "final_error": last}
    words = []
    half = int(np.argmax(np.asarray(errors) <= errors[-1] * 1.05))
    if half < len(errors) - 1:
        words.append(f"{size[at][half]} of {size[-1]} basis vectors have an error within 5 % of the last one's.")
    return Section("growth", "How it grew", words, numbers, figures=figures)


def cost_section(subject: Subject) -> Section:
    """Seconds by stage, size of the model and time of an answer."""
    model = subject.final
    stages: dict[str, float] = {}
    if hasattr(model, "tuning_seconds_"):
        stages["tuning: columns, metric, kernel, penalty"] = float(model.tuning_seconds_)
    history = getattr(model, "history_", None)
    if history is not None:
        stages["growing and solving, last step"] = float(np.asarray(history["seconds"])[-1])
    rows = subject.table.n_rows
    stages[f"predicting {rows} test rows"] = subject.timed[1]
    size = sum(one.nbytes for one in _arrays(model))
    per_row = subject.timed[1] / rows * 1e6
    words = [
        f"The model holds {short(size / 1e6)} MB of numbers and answers a row in {short(per_row)} µs, asked together."
    ]
    table = Grid("Seconds by stage", ["stage", "seconds"], [[name, value] for name, value in stages.items()])
    numbers = {"seconds": stages, "model_bytes": size, "microseconds_a_row": per_row}
    return Section("cost", "What it cost", words, numbers, [table])


def _arrays(model: Any) -> list[np.ndarray]:
    """Arrays without which there is no prediction."""
    expansions = getattr(model, "expansions_", ())
    if expansions:
        return [part for one in expansions for part in (np.asarray(one.basis), np.asarray(one.weights))]
    return [value for name, value in vars(model).items() if isinstance(value, np.ndarray) and not name.startswith("_")]


def repeat_section(subject: Subject) -> Section:
    """Versions, settings and seed."""
    found = {"Python": sys.version.split()[0], "machine": f"{platform.system()} {platform.machine()}"}
    found |= {name: installed(name) for name in PACKAGES}
    seed = getattr(subject.final, "random_state", None)
    settings = repr(subject.model)
    digest = subject.table.digest()
    words = [
        f"Settings: {settings}",
        f"Seed: {seed}." if seed is not None else "No seed was given: random_state=0 would make the fit repeatable.",
        f"The test rows have the hash {digest}.",
    ]
    table = Grid("Versions", ["package", "version"], [[name, one] for name, one in found.items()])
    numbers = {"settings": settings, "random_state": seed, "versions": found, "test_rows_hash": digest}
    return Section("repeat", "To repeat it", words, numbers, [table])
