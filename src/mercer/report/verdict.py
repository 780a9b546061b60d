"""The verdict in words: how good the model is beside models everybody knows, why its fit stopped, what to try next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mercer.report.baselines import baselines, error_of
from mercer.report.distance import learned_share
from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import bars, short
from mercer.stop_reason import StopKind, kinds_of

#: Models whose errors differ by less than this share are called alike.
ALIKE = 0.03
#: Standard errors of the rows' losses beyond which one model is better than another and not only luckier.
CLEAR = 2.0
#: The share of test rows among the basis vectors from which on the verdict begins with it.
LEARNED = 0.2


def verdict_section(subject: Subject) -> Section:
    ours = error_of(subject, subject.predicted, subject.shares)
    others = baselines(subject)
    unit = "wrong classes" if subject.classes is not None else "RMSE"
    words = [_first(subject, ours), *(_beside(subject, name, ours, one) for name, one in others.items())]
    words.append(_footing(subject))
    if (learned := learned_share(subject)) > LEARNED:
        words.insert(
            1, f"{learned:.0%} of these rows are rows that the model has learned from: new ones will be worse."
        )
    why = getattr(subject.final, "stop_reason_", None)
    if why:
        words.append(f"The fit ended: {why}.")
    every = {type(subject.final).__name__: ours, **others}
    keys = list(ours)
    names = {"error": unit, "unexplained": "variance not explained", "log_loss": "log loss"}
    rows = [[name, *(one.get(key) for key in keys)] for name, one in every.items()]
    table = Grid("Errors on the test rows, the smaller the better", ["model", *(names[key] for key in keys)], rows)
    says = f"{unit[0].upper()}{unit[1:]} of this model and of three others: " + ", ".join(
        f"{name} {short(one['error'])}" for name, one in every.items()
    )
    drawn = bars(["this model", *others], [one["error"] for one in every.values()], unit, says, own=0)
    numbers = {"errors": every, "stop_reason": why, "learned_share": learned}
    return Section("verdict", "Verdict", words, numbers, [table], [Figure(drawn, f"{says}.")])


def _first(subject: Subject, ours: Mapping[str, float]) -> str:
    n = subject.table.n_rows
    if subject.classes is not None:
        wrong = round(ours["error"] * n)
        share = f"{wrong} ({ours['error']:.1%})" if wrong else "none"
        verb = "is" if wrong <= 1 else "are"
        return f"Of {n} test rows of {len(subject.classes)} classes, {share} {verb} given a wrong class."
    several = f" over {len(subject.outputs)} outputs" if len(subject.outputs) > 1 else ""
    return (
        f"On {n} test rows the typical error (RMSE{several}) is {short(ours['error'])}; "
        f"{1 - ours['unexplained']:.1%} of the variance is explained."
    )


def _beside(subject: Subject, name: str, ours: Mapping[str, float], other: Mapping[str, float]) -> str:
    """Another model's error beside ours; a difference that chance may make is called that."""
    mine, its = ours["error"], other["error"]
    called = f"the {name}" if name in ("mean", "most frequent class") else name if name.endswith("s") else f"a {name}"
    begin = f"{called[0].upper()}{called[1:]} {'have' if name.endswith('trees') else 'has'}"
    size = short(its) if subject.classes is None else f"{its:.1%}"
    if abs(mine - its) <= ALIKE * max(mine, its):
        return f"{begin} about the same error ({size})."
    if abs(other["chance"]) < CLEAR:
        return f"{begin} a {'larger' if its > mine else 'smaller'} error ({size}), which may be chance on these rows."
    if mine == 0:
        return f"{begin} {size} wrong; this model has none."
    if mine < its:
        ratio = its / mine
        times = f"{ratio:.1f} times the error" if ratio >= 1.5 else f"{ratio - 1:.0%} more error"
        return f"{begin} {times} ({size})."
    return f"{begin} a smaller error: {size}, {1 - its / mine:.0%} less."


def _footing(subject: Subject) -> str:
    if subject.train is not None:
        return f"All learned from the same {subject.train[0].n_rows} rows."
    return (
        "The others learned from four fifths of the test rows, five times over, since no training rows were given: "
        "with X_train and y_train the comparison is on equal footing."
    )


def advice(subject: Subject, found: Mapping[str, Section]) -> list[str]:
    """What to try, from all that was found."""
    errors: Any = found["verdict"].numbers["errors"]
    ours = errors[type(subject.final).__name__]["error"]
    said = []
    linear, trees = (errors.get(name) for name in ("linear model", "gradient-boosted trees"))
    if linear is not None and linear["error"] < ours * (1 - ALIKE) and linear["chance"] < -CLEAR:
        said.append("A linear model is better here: take it, or give the model more rows.")
    elif linear is not None and linear["error"] < ours * (1 + ALIKE):
        said.append("A linear model is as good here: it is the simpler choice.")
    elif linear is not None and linear["chance"] < CLEAR:
        said.append("A linear model may be as good, as far as these few rows can tell: it is the simpler choice.")
    if trees is not None and trees["error"] < ours * (1 - ALIKE) and trees["chance"] < -CLEAR:
        said.append("Trees are better here, as they are on jumps and on many noisy columns: try them, or average both.")
    ends = kinds_of(getattr(subject.final, "stop_reason_", ""))
    if StopKind.TIME_BUDGET in ends:
        said.append("The time budget ended the fit: more seconds are worth a try.")
    if StopKind.MAX_ITER in ends:
        said.append("The search ended before it came to rest: raise max_iter.")
    growth = found.get("growth")
    curve = growth.numbers.get("test_error") if growth is not None else None
    if curve and len(curve) >= 4 and curve[-1] < 0.97 * curve[-2 if len(curve) < 10 else -len(curve) // 5]:
        said.append("The error was still falling at the last step: allow more basis vectors or learners.")
    distance = found.get("distance")
    if distance is not None and distance.numbers["extrapolation_share"] > 0.05:
        said.append("Many test rows lie far from what was learned: collect rows there, or do not trust those answers.")
    trust = found.get("trust")
    lean = trust.numbers.get("too") if trust is not None else None
    if lean == "narrow":
        said.append("Intervals hold less than they promise on these rows: are they like the training rows?")
    if lean == "wide":
        said.append("Intervals are wider than they need to be: safe, and narrower with more training rows.")
    return said or ["Nothing stands out: more rows, or columns that say something new, are what is left to try."]
