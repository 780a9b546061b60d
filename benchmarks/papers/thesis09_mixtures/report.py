"""Writes `results.md`: the printed numbers beside ours, and what the comparison must show."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HEAD = """# Thesis09, chapters 2 and 3: printed and ours

Written by `MERCER_DATA=… python benchmarks/papers/thesis09_mixtures/run.py`; figures by `figures.py` beside it.

- The thesis does not say whether its errors and accuracies are of training or of held-out rows. Ours are given for
  both: rows held out by cross-validation, and training rows.
- Sizes are chosen as the thesis chooses them: the smallest whose three-fold cross-validated score is within one
  standard error of the best. Folds are random, so sizes vary from draw to draw; where the thesis has one draw of an
  artificial set we have ten.
- What was set after seeing results: ENRBFC's default λ was 0.01 and became 1 after a look at Wisconsin, so its rows
  there are not an untouched test; λ = 0.01 is shown too. On the laser series λ = 1 was added after λ = 0.01 left ENRBF
  with one component at 16 and 32 lags; every model that has a λ there gets the better of the two by cross-validated
  error, which flatters that error a little. Wisconsin's ten folds use a size chosen on all rows, for all models alike.
- Everything else is the package's default; `covariance_type` and the largest size tried are set.
"""


def write(folder: Path, ours: dict[str, Any]) -> None:
    paper = tomllib.loads((folder / "paper.toml").read_text(encoding="utf-8"))
    parts = [HEAD]
    for part, table, key in (
        (_sin2, "figure2", "sin2"),
        (_laser, "table2_3", "laser"),
        (_gaussians, "figure3", "gaussians"),
        (_wdbc, "table3_3", "wdbc"),
    ):
        if key in ours:
            printed = paper[table]
            parts.append(f"## {printed['where']}\n\n{printed['what'][0].upper()}{printed['what'][1:]}.\n")
            parts.append(part(printed["rows"], ours[key]))
    (folder / "results.md").write_text("\n".join(parts), encoding="utf-8")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _sizes(sizes: list[int]) -> str:
    return f"{np.median(sizes):g} (" + ", ".join(f"{size}: {n}" for size, n in sorted(Counter(sizes).items())) + ")"


def _sin2(printed: list[dict[str, Any]], ours: dict[str, Any]) -> str:
    rows = [
        [
            row["model"],
            str(row["components"]),
            f"**{_sizes(ours[row['model']]['sizes'])}**",
            f"{ours[row['model']]['error']:.3f}",
        ]
        for row in printed
        if row["model"] in ours
    ]
    return _table(["model", "components, printed", "ours: median (size: draws)", "RMSE to the clean function"], rows)


def _gaussians(printed: list[dict[str, Any]], ours: dict[str, Any]) -> str:
    rows = [
        [
            row["model"],
            str(row["components"]),
            f"**{_sizes(ours[row['model']]['sizes'])}**",
            f"{100 * ours[row['model']]['score']:.1f}",
        ]
        for row in printed
        if row["model"] in ours
    ]
    head = ["model", "components, printed", "ours: median (size: draws)", "accuracy on 10 000 new rows, %"]
    return (
        _table(head, rows)
        + "\nBayes' rule is right on 82.7 % of new rows. Components of GMC are those of both classes.\n"
    )


LASER = ("NRBF by EM", "NRBF by gradient", "ENRBF", "ENRBF by gradient")


def _laser(printed: list[dict[str, Any]], ours: dict[str, Any]) -> str:
    rows, equal = [], []
    for row in printed:
        lag = row["lags"]
        found = {name: _better(ours, f"{lag}, {name}") for name in LASER}
        if any(value is None for value in found.values()):
            continue
        cells = [_laser_cell(found[name]) for name in LASER]
        nrbf, enrbf = (f"{row[key]:.2f} with {row[key + '_components']}" for key in ("nrbf", "enrbf"))
        rows.append([str(lag), nrbf, *cells[:2], enrbf, *cells[2:]])
        line = [str(lag)]
        for mine, others in (("ENRBF", LASER[:2]), ("ENRBF by gradient", LASER[1:2])):
            line.append(f"{_at(found[mine]):.2f} with **{found[mine]['components']}**")
            line += [_enough(_runs(ours, f"{lag}, {other}"), _at(found[mine])) for other in others]
        equal.append(line)
    head = ["lags", "NRBF printed", "by EM", "by gradient", "ENRBF printed", "by EM", "by gradient"]
    needs = "NRBF by gradient needs"
    own = ["lags", "ENRBF by EM", "NRBF by EM needs", needs, "ENRBF by gradient", needs]
    return _table(head, rows) + LASER_NOTE + _table(own, equal) + LASER_VERDICT


LASER_NOTE = """
A cell of ours: **cross-validated RMSE with the number of components chosen**; RMSE on the training rows / one step
ahead on the next 2000 values of the series, which the thesis does not use. Diagonal covariances, as in section 2.5.
Gradient training is L-BFGS over all parameters from where EM ends. A training error far above the cross-validated one
(NRBF by gradient at 32 lags) is a final fit that ended in a poor local minimum.

Components needed for ENRBF's cross-validated error, the thesis' claim being that NRBF needs more:

"""
LASER_VERDICT = """
The thesis trains NRBF by gradient and ENRBF by EM. In that pairing (fourth column against the second) its claim is not
borne out here: from 2 to 16 lags our gradient-trained NRBF needs fewer components than ENRBF by EM. Under one training
it is, EM with EM at every lag, gradient with gradient at 2, 4, 8 and 32 lags (equal at 1 and 16). One component of
ENRBF is linear regression, so rows with one component say only that nothing larger was found to be worth it.
"""


def _runs(ours: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The runs of a model with the default λ and with λ = 1."""
    return [ours[key] for key in (name, f"{name}, λ = 1") if key in ours]


def _enough(runs: list[dict[str, Any]], error: float) -> str:
    """The smallest size of any of the runs whose cross-validated error is no larger."""
    sizes = [size for run in runs for size, own in zip(run["sizes"], run["cv"], strict=True) if own <= error]
    return f"**{min(sizes)}**" if sizes else f"more than {runs[0]['sizes'][-1]}"


def _better(ours: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Of the runs of a model the one of smaller cross-validated error."""
    return min(_runs(ours, name), key=_at, default=None)


def _laser_cell(found: dict[str, Any]) -> str:
    return f"**{_at(found):.2f} with {found['components']}**; {found['train']:.2f} / {found['later']:.2f}"


def _at(found: dict[str, Any]) -> float:
    """The cross-validated error at the size chosen."""
    return found["cv"][found["sizes"].index(_nearest(found["sizes"], found["components"]))]


def _nearest(sizes: list[int], size: int) -> int:
    """The size tried; fewer components may be in use than were asked for."""
    return min(sizes, key=lambda tried: abs(tried - size))


def _wdbc(printed: list[dict[str, Any]], ours: dict[str, Any]) -> str:
    rows = []
    for row in printed:
        name = f"{row['model']}, {row['covariance']}"
        earlier = f"ENRBFC, λ = 0.01, {row['covariance']}"
        for key in [name, earlier] if row["model"] == "ENRBFC" else [name]:
            if key not in ours:
                continue
            found = ours[key]
            rows.append(
                [
                    row["model"] if key == name else "ENRBFC, λ = 0.01",
                    row["covariance"],
                    f"{row['accuracy']:.2f} with {row['components']}",
                    f"**{found['train']:.2f} with {found['components']}**",
                    f"**{found['test']:.2f}** ± {found['test_error']:.2f}",
                ]
            )
    head = ["model", "covariance", "printed", "ours, training rows", "ours, ten-fold cross-validated"]
    lines = []
    for covariance in ("spherical", "diagonal", "full"):
        rivals = {k: v for k, v in ours.items() if k.endswith(f", {covariance}") and not k.startswith("ENRBFC")}
        mine = ours.get(f"ENRBFC, {covariance}")
        if mine and rivals:
            best = max(rivals, key=lambda k: rivals[k]["test"])
            ahead = "ahead of" if mine["test"] > rivals[best]["test"] else "not ahead of"
            lines.append(
                f"- {covariance}: ENRBFC {mine['test']:.2f} %, {ahead} the best rival ({best.split(',')[0]}, "
                f"{rivals[best]['test']:.2f} %); on training rows {mine['train']:.2f} % against "
                f"{max(v['train'] for v in rivals.values()):.2f} %."
            )
    note = "\nOne component of ENRBFC is logistic regression: where it is chosen, that is ahead, not a mixture.\n"
    return _table(head, rows) + "\n" + "\n".join(lines) + "\n" + note
