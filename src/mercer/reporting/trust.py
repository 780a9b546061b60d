"""Calibration on the test rows: coverage of intervals, or probabilities beside the share of right predictions."""

from __future__ import annotations

import inspect

import numpy as np
from scipy.stats import norm

from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Line, chart

LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Bins of rows by their probability.
BINS = 10
#: Standard errors within which a promise and the test rows may differ by chance: the worst of several is reported.
CHANCE = 2.5


def trust_section(subject: Subject) -> Section | None:
    """Coverage of the intervals of a regressor, calibration of the probabilities of a classifier."""
    return _coverage(subject) if subject.classes is None else _calibration(subject)


def intervals(subject: Subject, coverage: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Ends of the intervals of a coverage (n × p each): the model's own, else from its standard deviations."""
    model, X = subject.estimator, subject.inner_table.X
    shape = subject.observed.shape
    if hasattr(model, "predict_interval"):
        ends = np.asarray(model.predict_interval(X, coverage=coverage))
        return ends[..., 0].reshape(shape), ends[..., -1].reshape(shape)
    if "return_std" not in inspect.signature(model.predict).parameters:
        return None
    mean, std = model.predict(X, return_std=True)
    mean, std = np.asarray(mean).reshape(shape), np.asarray(std)
    half = norm.ppf(0.5 + coverage / 2) * (std.reshape(shape) if std.size == mean.size else std.reshape(-1, 1))
    return mean - half, mean + half


def _coverage(subject: Subject) -> Section | None:
    reached, widths = [], []
    for level in LEVELS:
        ends = intervals(subject, level)
        if ends is None:
            return None
        low, high = ends
        reached.append(float(np.mean((subject.observed >= low) & (subject.observed <= high))))
        widths.append(float(np.mean(high - low)))
    worst = int(np.argmax(np.abs(np.subtract(reached, LEVELS))))
    off = reached[worst] - LEVELS[worst]
    noise = CHANCE * np.sqrt(LEVELS[worst] * (1 - LEVELS[worst]) / len(subject.y))
    lean = "" if abs(off) < max(noise, 0.02) else "wide" if off > 0 else "narrow"
    words = [
        f"Intervals of {LEVELS[worst]:.0%} hold {reached[worst]:.1%} of the test rows, the farthest of all from "
        f"its promise; chance alone makes up to ±{noise:.1%}. "
        + (f"They are too {lean}." if lean else "They can be trusted.")
    ]
    share = _noise_share(subject)
    if share is not None:
        words.append(
            f"Noise of the targets makes {share:.0%} of the squared error that the model expects; the rest is its own "
            "uncertainty, which more rows would lower."
        )
    rows = [[f"{a:.0%}", f"{b:.1%}", c] for a, b, c in zip(LEVELS, reached, widths, strict=True)]
    table = Grid("Coverage", ["promised", "held", "mean width"], rows)
    caption = "Share of test rows inside intervals of each promised coverage; on the dashed line the promise is kept."
    diagonal = np.array([LEVELS[0], LEVELS[-1]])
    marks = [
        Line(np.array(LEVELS), np.array(reached), "intervals", 0, dots=True),
        Line(diagonal, diagonal, "promise", dashed=True),
    ]
    figure = chart(marks, "promised coverage", "share of test rows inside", caption)
    numbers = {"promised": LEVELS, "held": reached, "mean_width": widths, "too": lean, "noise_share": share}
    return Section("trust", "Can its intervals be trusted?", words, numbers, [table], [figure])


def _noise_share(subject: Subject) -> float | None:
    """The share of noise in the squared error that the model expects at the test rows; None if it does not know."""
    if not hasattr(subject.estimator, "predict_uncertainty"):
        return None
    try:
        found = subject.estimator.predict_uncertainty(subject.inner_table.X)
    except ValueError:  # of another loss than the squared one, or of kernel values
        return None
    share = float(np.sum(found.noise**2) / np.sum(found.total**2))
    return share if np.isfinite(share) else None


def _calibration(subject: Subject) -> Section | None:
    p = subject.probabilities
    if p is None or subject.classes is None:
        return None
    sure = p.max(1)
    right = (subject.classes[p.argmax(1)] == subject.y).astype(float)
    order = np.argsort(sure, kind="stable")
    bins = [rows for rows in np.array_split(order, min(BINS, max(1, len(order) // 10))) if len(rows)]
    promised = np.array([sure[rows].mean() for rows in bins])
    reached = np.array([right[rows].mean() for rows in bins])
    share = np.array([len(rows) for rows in bins]) / len(order)
    gap = float(share @ np.abs(promised - reached))
    lean = float(sure.mean() - right.mean())
    noise = CHANCE * float(np.sqrt(np.mean(sure * (1 - sure)) / len(sure)))
    verdict = "as sure as it should be"
    if abs(lean) >= max(noise, 0.02):
        verdict = f"too {'sure' if lean > 0 else 'cautious'}"
    words = [
        f"The model is {sure.mean():.1%} sure of the class it names, and right in {right.mean():.1%} of the test rows: "
        f"{verdict} (chance alone makes up to ±{noise:.1%}).",
        f"Calibration error (ECE, {len(bins)} parts of equally many rows): {gap:.1%}.",
    ]
    caption = (
        f"How often the model is right against how sure it is, in {len(bins)} parts; on the dashed line both agree."
    )
    diagonal = np.array([min(promised.min(), reached.min()), 1.0])
    marks = [
        Line(promised, reached, "model", 0, dots=True),
        Line(diagonal, diagonal, "agreement", dashed=True),
    ]
    figure = chart(marks, "probability of the class named", "share of right answers", caption)
    numbers = {
        "calibration_error": gap,
        "chance": noise,
        "mean_confidence": float(sure.mean()),
        "said": promised,
        "came_true": reached,
    }
    return Section("trust", "Can its probabilities be trusted?", words, numbers, figures=[figure])
