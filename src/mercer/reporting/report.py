"""`report`: the quality of a fitted model, in words, tables and pictures, on one page that opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
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
from mercer.reporting.ranking import ranking_section
from mercer.reporting.section import Grid, Section, to_json
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
STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1c2330;--soft:#56606f;--line:#d8dde5;--card:#f5f7fa;--link:#0b5cad;
--c0:#1f6fb4;--c1:#c8501e;--c2:#5f6b7a}
@media (prefers-color-scheme:dark){:root{--page:#14181f;--text:#e6e9ee;--soft:#a5afbd;--line:#343c49;--card:#1c222c;
--link:#7db8f0;--c0:#64aeea;--c1:#f09a62;--c2:#9aa6b5}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
a{color:var(--link)}a:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--page);padding:6px 10px}
header,main,footer{max-width:62rem;margin:0 auto;padding:0 1.1rem}
header{padding-top:1.8rem}h1{font-size:min(1.7rem,5.8vw);line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:0 0 .6rem}
.by{color:var(--soft);margin:.3rem 0 1rem;overflow-wrap:anywhere}
nav ul{list-style:none;margin:0 0 1rem;padding:0;display:flex;flex-wrap:wrap;gap:.3rem .9rem}
section{border-top:1px solid var(--line);padding:1.3rem 0;scroll-margin-top:1rem}
section p{margin:.35rem 0;max-width:46rem;overflow-wrap:anywhere}
#verdict p:first-of-type{font-size:1.15rem;font-weight:600}
.try{background:var(--card);border-left:4px solid var(--c0);padding:.6rem .9rem;margin:.9rem 0}
.try ul{margin:.2rem 0;padding-left:1.2rem}.try h3{font-size:1rem;margin:0}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr));gap:1rem;margin:.9rem 0}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.7rem;break-inside:avoid}
figcaption{color:var(--soft);font-size:.85rem;margin-top:.3rem}
svg{display:block;width:100%;height:auto;max-width:34rem}
svg text{fill:var(--text);font-size:12px;font-family:inherit}svg .label{fill:var(--soft)}svg .mid{text-anchor:middle}
svg .end{text-anchor:end}
svg .grid{stroke:var(--line);stroke-width:1}svg .axis{stroke:var(--soft);stroke-width:1}
svg .line{fill:none;stroke-width:2}svg .dashed{stroke-dasharray:6 4}svg .band{opacity:.22}
svg .dots{fill:none;stroke-linecap:round;stroke-width:4;opacity:.45}
svg .knots{fill:none;stroke-linecap:round;stroke-width:6}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}
.scroll{overflow-x:auto;max-width:100%;margin:.8rem 0}
table{border-collapse:collapse;font-size:.9rem}caption{text-align:left;white-space:nowrap;color:var(--soft);padding-bottom:.25rem}
th,td{padding:.22rem .8rem .22rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}
@media(max-width:480px){th,td{padding-right:.55rem}}
footer{color:var(--soft);font-size:.85rem;padding-bottom:2rem}
@media print{nav,.skip{display:none}body{font-size:11pt;background:#fff;color:#000}section{break-inside:avoid-page}
.scroll{overflow:visible}:root{--page:#fff;--text:#000;--soft:#444;--line:#bbb;--card:#fff;--c0:#1f6fb4;--c1:#c8501e}}
"""


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
    >>> X, y = make_smooth_regression(200, 3, noise=0.05, random_state=0)
    >>> model = mercer.GreedyKernelRegressor(20, kernel=Gaussian(2.0), random_state=0).fit(X[:150], y[:150])
    >>> made = mercer.report(model, X[150:], y[150:], path=None, X_train=X[:150], y_train=y[:150])
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


def page(title: str, by: str, sections: Sequence[Section], advice: Sequence[str]) -> str:
    """The whole document."""
    links = "".join(f'<li><a href="#{part.key}">{escape(part.title)}</a></li>' for part in sections)
    body = "".join(_section(part, advice if k == 0 else ()) for k, part in enumerate(sections))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>'
        '<a class="skip" href="#verdict">To the verdict</a>'
        f'<header><h1>{escape(title)}</h1><p class="by">{escape(by)}</p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main>{body}</main>\n'
        "<footer><p>Made by mercer. This page holds all it shows; it needs no network.</p></footer></body></html>\n"
    )


def _section(section: Section, advice: Sequence[str]) -> str:
    key = section.key
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in section.words if sentence)
    hints = "".join(f"<li>{escape(hint)}</li>" for hint in advice)
    box = f'<div class="try"><h3>What to try</h3><ul>{hints}</ul></div>' if hints else ""
    figures = "".join(
        f"<figure>{each.svg}<figcaption>{escape(each.caption)}</figcaption></figure>" for each in section.figures
    )
    figures = f'<div class="figures">{figures}</div>' if figures else ""
    tables = "".join(_table(each) for each in section.tables)
    return (
        f'\n<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{escape(section.title)}</h2>'
        f"{words}{box}{figures}{tables}</section>"
    )


def _table(grid: Grid) -> str:
    """A table that scrolls by itself where it is too wide, by keyboard too."""
    numeric = [all(not isinstance(row[k], str) for row in grid.rows) for k in range(len(grid.head))]
    mark = [' class="n"' if is_number else "" for is_number in numeric]
    head = "".join(f'<th scope="col"{m}>{escape(name)}</th>' for m, name in zip(mark, grid.head, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{m}>{escape(cell)}</td>" for m, cell in zip(mark, row, strict=True)) + "</tr>"
        for row in grid.text()
    )
    caption = escape(grid.caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(grid.caption, quote=True)}"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
