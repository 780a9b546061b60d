"""The verdict: how good the model is beside well-known models, why its fit stopped, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mercer.clock import StopKind, kinds_of
from mercer.reporting.baselines import baselines, error_of
from mercer.reporting.distance import learned_share
from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Figure, bars, short

#: Models whose errors differ by less than this share are called alike.
ALIKE = 0.03
#: Standard errors of the rows' losses beyond which a difference of two models is not called chance.
CLEAR = 2.0
#: The share of test rows among the basis vectors from which on the verdict warns about them.
LEARNED = 0.2
#: Names of error measures in tables.
MEASURES = {"unexplained": "variance not explained", "log_loss": "log loss"}


def verdict_section(subject: Subject) -> Section:
    """The error of the model beside those of baselines, in words, a table and bars."""
    ours = error_of(subject, subject.predicted, subject.probabilities)
    others = baselines(subject)
    errors = {type(subject.estimator).__name__: ours, **others}
    learned = learned_share(subject)
    reason = getattr(subject.estimator, "stop_reason_", None)
    words = [_first(subject, ours)]
    if learned > LEARNED:
        words.append(f"{learned:.0%} of these rows are rows that the model has learned from: new ones will be worse.")
    words += [_beside(subject, name, ours, other) for name, other in others.items()]
    words.append(_footing(subject))
    words += [f"The fit ended: {reason}."] if reason else []
    table, figure = _comparison(subject, ours, others, errors)
    numbers = {"errors": errors, "stop_reason": reason, "learned_share": learned}
    return Section("verdict", "Verdict", words, numbers, [table], [figure])


def _comparison(
    subject: Subject, ours: Mapping[str, float], others: Mapping[str, Any], errors: Mapping[str, Any]
) -> tuple[Grid, Figure]:
    """Errors of all models as a table, and as bars."""
    unit = "wrong classes" if subject.classes is not None else "RMSE"
    measures = list(ours)
    rows = [[name, *(error.get(measure) for measure in measures)] for name, error in errors.items()]
    head = ["model", *(MEASURES.get(measure, unit) for measure in measures)]
    table = Grid("Errors on the test rows, the smaller the better", head, rows)
    caption = f"{unit[0].upper()}{unit[1:]} of this model and of three others: " + ", ".join(
        f"{name} {short(error['error'])}" for name, error in errors.items()
    )
    values = [error["error"] for error in errors.values()]
    return table, bars(["this model", *others], values, unit, f"{caption}.", highlight=0)


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


def advice(subject: Subject, sections: Mapping[str, Section]) -> list[str]:
    """Advice on the next steps, from all sections."""
    hints = [
        *_hints_from_baselines(subject, sections["verdict"]),
        *_hints_from_the_end(subject),
        *_hints_from_growth(sections.get("growth")),
        *_hints_from_rows(sections.get("distance"), sections.get("trust")),
    ]
    return hints or ["Nothing stands out: more rows, or columns that say something new, are what is left to try."]


def _hints_from_baselines(subject: Subject, verdict: Section) -> Iterator[str]:
    errors: Any = verdict.numbers["errors"]
    ours = errors[type(subject.estimator).__name__]["error"]
    linear, trees = (errors.get(name) for name in ("linear model", "gradient-boosted trees"))
    if linear is not None and linear["error"] < ours * (1 - ALIKE) and linear["chance"] < -CLEAR:
        yield "A linear model is better here: take it, or give the model more rows."
    elif linear is not None and linear["error"] < ours * (1 + ALIKE):
        yield "A linear model is as good here: it is the simpler choice."
    elif linear is not None and linear["chance"] < CLEAR:
        yield "A linear model may be as good, as far as these few rows can tell: it is the simpler choice."
    if trees is not None and trees["error"] < ours * (1 - ALIKE) and trees["chance"] < -CLEAR:
        yield "Trees are better here, as they are on jumps and on many noisy columns: try them, or average both."


def _hints_from_the_end(subject: Subject) -> Iterator[str]:
    kinds = kinds_of(getattr(subject.estimator, "stop_reason_", ""))
    if StopKind.TIME_BUDGET in kinds:
        yield "The time budget ended the fit: more seconds are worth a try."
    if StopKind.MAX_ITER in kinds:
        yield "The search ended before it came to rest: raise max_iter."


def _hints_from_growth(growth: Section | None) -> Iterator[str]:
    curve = growth.numbers.get("test_error") if growth is not None else None
    if curve and len(curve) >= 4 and curve[-1] < 0.97 * curve[-2 if len(curve) < 10 else -len(curve) // 5]:
        yield "The error was still falling at the last step: allow more basis vectors or learners."


def _hints_from_rows(distance: Section | None, trust: Section | None) -> Iterator[str]:
    if distance is not None and distance.numbers["extrapolation_share"] > 0.05:
        yield "Many test rows lie far from what was learned: collect rows there, or do not trust those answers."
    width = trust.numbers.get("too") if trust is not None else None
    if width == "narrow":
        yield "Intervals hold less than they promise on these rows: are they like the training rows?"
    if width == "wide":
        yield "Intervals are wider than they need to be: safe, and narrower with more training rows."
