"""`report`: the quality of a fitted model, in words, tables and pictures, on one page that opens from disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from mercer.atomic_write import write_atomically
from mercer.parts import require, visible
from mercer.reporting.distance import distance_section
from mercer.reporting.effects import effects_section, rows_section
from mercer.reporting.errors import fit_section, residual_section
from mercer.reporting.growth import cost_section, growth_section, repeat_section
from mercer.reporting.model import columns_section, kernel_section, local_section, selection_section
from mercer.reporting.page import page
from mercer.reporting.ranking import ranking_section
from mercer.reporting.section import Section, to_json
from mercer.reporting.subject import Subject
from mercer.reporting.trust import trust_section
from mercer.reporting.verdict import advice, verdict_section

#: Every section in the order of the page; each returns None where the model has nothing to show.
SECTIONS = (
    verdict_section,
    fit_section,
    ranking_section,
    trust_section,
    residual_section,
    effects_section,
    rows_section,
    kernel_section,
    local_section,
    distance_section,
    growth_section,
    selection_section,
    columns_section,
    cost_section,
    repeat_section,
)


@dataclass(frozen=True)
class Report:
    """A report that was made: its sections, and the page it was written to, if any."""

    title: str
    by: str
    sections: tuple[Section, ...]
    advice: tuple[str, ...]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """All numbers and sentences by section, of types that JSON has."""
        sections = {part.key: {"words": list(part.words), **to_json(part.numbers)} for part in self.sections}
        return {"title": self.title, "model": self.by, "advice": list(self.advice), **sections}

    def to_html(self) -> str:
        """The page, complete in itself."""
        return visible(page(self.title, self.by, self.sections, self.advice), kept="\n\t")

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sections[0].words)
        link = (
            f'<p><a href="{escape(str(self.path), quote=True)}">{escape(str(self.path))}</a></p>' if self.path else ""
        )
        return f"<div><strong>{escape(self.title)}</strong>{words}{link}</div>"


def report(
    model: Any,
    X_test: Any,
    y_test: Any,
    path: str | PathLike[str] | None = "report.html",
    *,
    X_train: Any = None,
    y_train: Any = None,
    title: str | None = None,
) -> Report:
    """Report the quality of a fitted model, on one HTML page that opens from disk without a network.

    The page begins with a verdict in words: the error on the test rows beside that of the mean, a linear model and
    gradient-boosted trees, why the fit stopped, and what to try. Then come predicted and observed values, intervals or
    probabilities beside what came true, residuals and effects by input, single rows taken apart, kernels and relevance,
    how far the test rows lie from what was learned, the growth of the model, model selection, the table's columns,
    costs, and all that is needed to repeat it. A section appears where the model has what it needs.

    Parameters
    ----------
    model : estimator
        A fitted regressor or classifier of this package, also inside a pipeline or a search; others of scikit-learn
        get the sections that any model can have.
    X_test : array, tensor, frame, file or row source
        Rows that the model did not learn from. At most 20 000 of them are used, evenly spaced.
    y_test : array of shape (n,) or (n, p)
        Their targets.
    path : str, path or None, default "report.html"
        Where the page is written; None writes none.
    X_train, y_train : optional
        The rows that the model learned from: the other models learn from them too then. Without them, the other models
        are cross-validated inside the test rows, and have fewer rows to learn from.
    title : str or None, default None
        Headline of the page.

    Returns
    -------
    Report
        With `to_dict()`, the numbers behind the page, and `to_html()`.

    Examples
    --------
    >>> import mercer
    >>> from mercer.datasets import make_smooth_regression
    >>> from mercer.kernels import Gaussian
    >>> X, y = make_smooth_regression(400, 3, noise=0.05, random_state=0)
    >>> model = mercer.GreedyKernelRegressor(40, kernel=Gaussian(2.0), random_state=0).fit(X[:300], y[:300])
    >>> made = mercer.report(model, X[300:], y[300:], path=None, X_train=X[:300], y_train=y[:300])
    >>> errors = made.to_dict()["verdict"]["errors"]
    >>> errors["GreedyKernelRegressor"]["error"] < errors["linear model"]["error"]
    True
    """
    require((X_train is None) == (y_train is None), "X_train and y_train", "given together", "one of them")
    subject = Subject.of(model, X_test, y_test, None if X_train is None else (X_train, y_train))
    sections = [section for make in SECTIONS if (section := make(subject)) is not None]
    hints = advice(subject, {section.key: section for section in sections})
    name = type(subject.estimator).__name__
    made = Report(title or f"{name}: {_about(subject)}", repr(model), tuple(sections), tuple(hints))
    if path is None:
        return made
    write_atomically(path, lambda file: file.write(made.to_html()), text=True)
    return replace(made, path=Path(path))


def _about(subject: Subject) -> str:
    if subject.classes is not None:
        return f"{len(subject.classes)} classes from {len(subject.table.names)} columns"
    what = subject.outputs[0] if len(subject.outputs) == 1 else f"{len(subject.outputs)} outputs"
    return f"{what} from {len(subject.table.names)} columns"
