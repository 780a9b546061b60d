"""How well probabilities rank two classes: ROC and precision-recall curves, and what each threshold does."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_curve

from mercer.data import spaced_rows
from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Figure, Line, chart

#: Thresholds of the table.
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Points of a curve that are drawn.
POINTS = 200


def ranking_section(subject: Subject) -> Section | None:
    """Area under the ROC curve, average precision, both curves, and a table of thresholds; two classes only."""
    p, classes = subject.probabilities, subject.classes
    if p is None or classes is None or len(classes) != 2:
        return None
    positive, score = subject.y == classes[1], p[:, 1]
    n_positive = int(positive.sum())
    if not 0 < n_positive < len(positive):
        return None
    area, error = auc_and_error(score, positive)
    precision_area = float(average_precision_score(positive, score))
    share, name = n_positive / len(positive), str(classes[1])
    measures = [at_threshold(score, positive, threshold) for threshold in THRESHOLDS]
    best = best_threshold(score, positive)
    words = [
        f"A row of {name} has a larger probability of {name} than one of {classes[0]} in {area:.1%} of all pairs (AUC "
        f"{area:.3f} ± {error:.3f}). Average precision is {precision_area:.3f}; by chance it would be {share:.3f}.",
        f"F1 is largest on these rows if {name} is predicted from a probability of {best['threshold']:.3f}: "
        f"{best['precision']:.1%} of the rows so predicted are right, and {best['recall']:.1%} of {name} are found.",
    ]
    head = ["from probability", "share of rows", "precision", "recall", "false positive rate", "F1"]
    cells = [[f"{row['threshold']:.1f}", *(f"{row[key]:.1%}" for key in list(row)[1:])] for row in measures]
    numbers = {
        "positive": name,
        "auc": area,
        "auc_error": error,
        "average_precision": precision_area,
        "best_f1": best,
        "thresholds": measures,
    }
    table = Grid(f"Predicting {name} from a threshold on", head, cells)
    figures = [_roc(score, positive, area), _precision_recall(score, positive, precision_area, share)]
    return Section("ranking", "How well are the classes separated?", words, numbers, [table], figures)


def auc_and_error(score: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Area under the ROC curve and its standard error (DeLong, DeLong and Clarke-Pearson 1988).

    >>> auc_and_error(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))[0]
    0.75
    """
    above, below = score[positive], score[~positive]
    found, missed = _share_below(np.sort(below), above), 1 - _share_below(np.sort(above), below)
    variance = sum(part.var(ddof=1) / len(part) for part in (found, missed) if len(part) > 1)
    return float(found.mean()), float(np.sqrt(variance))


def _share_below(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The share of sorted numbers below each value; equal ones count half."""
    ends = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return ends / (2 * len(ordered))


def at_threshold(score: np.ndarray, positive: np.ndarray, threshold: float) -> dict[str, float]:
    """Share of rows at or above a threshold, precision (1 if there are none), recall, false positive rate and F1."""
    named = score >= threshold
    right = int((named & positive).sum())
    recall, precision = right / positive.sum(), right / named.sum() if named.any() else 1.0
    return {
        "threshold": float(threshold),
        "share": float(named.mean()),
        "precision": float(precision),
        "recall": float(recall),
        "false_positive_rate": float((named & ~positive).sum() / (~positive).sum()),
        "f1": 2 * right / float(named.sum() + positive.sum()),
    }


def best_threshold(score: np.ndarray, positive: np.ndarray) -> dict[str, float]:
    """The measures at the threshold of largest F1."""
    precision, recall, thresholds = precision_recall_curve(positive, score)
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo(float).tiny)
    return at_threshold(score, positive, thresholds[int(f1[:-1].argmax())])


def _roc(score: np.ndarray, positive: np.ndarray, area: float) -> Figure:
    caption = f"ROC curve: recall against the false positive rate; its area is {area:.3f}, and 0.5 on the dashed line."
    false, true, _ = roc_curve(positive, score)
    ends = np.array([0.0, 1.0])
    shown = spaced_rows(np.ones(len(true)), POINTS)
    marks = [Line(false[shown], true[shown], "model", 0), Line(ends, ends, "chance", dashed=True)]
    return chart(marks, "false positive rate", "recall", caption)


def _precision_recall(score: np.ndarray, positive: np.ndarray, area: float, share: float) -> Figure:
    caption = f"Precision against recall: the average precision is {area:.3f}; the dashed line is chance."
    precision, recall, _ = precision_recall_curve(positive, score)
    shown = spaced_rows(np.ones(len(recall)), POINTS)[::-1]
    chance = Line(np.array([0.0, 1.0]), np.array([share, share]), "chance", dashed=True)
    marks = [Line(recall[shown], precision[shown], "model", 0), chance]
    return chart(marks, "recall", "precision", caption)
