"""Writes `results.md` of chapters 2 and 3: the printed numbers beside ours, and what the comparison shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from judge import Verdict, judge, standard_error, tally
from laser import laser_lines
from measure import Store

HEAD = """# Thesis09, chapters 2 and 3: printed and ours

Written by `MERCER_DATA=… python benchmarks/papers/thesis09_mixtures/run.py`; figures by `figures.py` beside it.

- The thesis does not say whether its errors and accuracies are of training or of held-out rows. Ours are given for
  both: rows held out by cross-validation, and training rows. It prints one number without a spread.
- Sizes are chosen as the thesis chooses them: the smallest whose three-fold cross-validated score is within one
  standard error of the best; a model of that size then grows from the smaller ones on all rows, as those judged did on
  theirs. Folds are random, so sizes vary from draw to draw; where the thesis has one draw of an artificial set we have
  ten.
- What was set after seeing results: ENRBFC's default λ was 0.01 and became 1 after a look at Wisconsin, so its rows
  there are not an untouched test; λ = 0.01 is shown too, and 10⁻⁶, since the thesis has no penalty. On the laser series
  λ = 1 was added after λ = 0.01 left ENRBF with one component at 16 and 32 lags; every model that has a λ there gets
  the better of the two by cross-validated error, which flatters that error a little. Wisconsin's ten folds use a size
  chosen on all rows, for all models alike.
- The thesis reviews unnormalised networks (eq. 2.3) and uses normalised ones; only these are here, with the gates'
  priors and determinants (eq. 2.6, 2.7), which eq. 2.4 leaves out. Everything else is the package's default;
  `covariance_type` and the largest size tried are set.
- Tables 2-2 and 3-4 and figures 2-7 and 2-8 are of a hospital's data, which nobody else has; table 2-4 is a list of
  literature. In place of table 3-4, its models are measured on five public sets of several classes.
- Seconds are those of one x86 core with as many processes as cores beside it; the printed ones are of 2009.
"""


def write(paper: dict[str, Any], store: Store, target: Path) -> None:
    parts = [HEAD + f"- {store.versions()}\n"]
    for part, table in ((_sin2, "figure2"), (_laser, "table2_3"), (_gaussians, "figure3"), (_wdbc, "table3_3")):
        printed = paper[table]
        parts.append(f"## {printed['where']}\n\n{printed['what'][0].upper()}{printed['what'][1:]}.\n")
        parts.append(part(printed["rows"], store))
    parts.append(_several(store))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(parts), encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _sizes(sizes: list[int]) -> str:
    return f"{np.median(sizes):g} (" + ", ".join(f"{size}: {n}" for size, n in sorted(Counter(sizes).items())) + ")"


def size_verdicts(kind: str, printed: list[dict[str, Any]], store: Store) -> dict[str, Verdict]:
    """The sizes chosen on our draws beside the one printed; neither more nor fewer components are better."""
    found = {row["model"]: [c["size"] for c in store.under(f"{kind}/{row['model']}/").values()] for row in printed}
    return {row["model"]: judge(found[row["model"]], row["components"]) for row in printed if found[row["model"]]}


def size_word(verdict: Verdict) -> str:
    return str(verdict).replace("better", "more").replace("worse", "fewer")


def _sin2(printed: list[dict[str, Any]], store: Store) -> str:
    return _chosen("sin2", "error", 3, "RMSE to the clean function", printed, store)


def _gaussians(printed: list[dict[str, Any]], store: Store) -> str:
    note = "\nBayes' rule is right on 82.7 % of new rows. Components of GMC are those of both classes.\n"
    return _chosen("gaussians", "score", 1, "accuracy on 10 000 new rows, %", printed, store) + note


def _chosen(kind: str, key: str, digits: int, title: str, printed: list[dict[str, Any]], store: Store) -> str:
    """Sizes chosen on our draws beside those printed, and the mean of `key` with so many digits."""
    rows, said = [], size_verdicts(kind, printed, store)
    for row in printed:
        cells = list(store.under(f"{kind}/{row['model']}/").values())
        if cells:
            values = [cell[key] for cell in cells]
            sizes = f"**{_sizes([cell['size'] for cell in cells])}**"
            value = f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"
            label = store.mark(f"{kind}/{row['model']}/", row["model"])
            rows.append([label, str(row["components"]), sizes, size_word(said[row["model"]]), value])
    return table(["model", "components, printed", "ours: median (size: draws)", "verdict", title], rows)


def _laser(printed: list[dict[str, Any]], store: Store) -> str:
    return laser_lines(printed, store, table)


def wdbc_verdict(row: dict[str, Any], store: Store, prefix: str = "wdbc", model: str | None = None) -> Verdict | None:
    """Ten-fold accuracy beside the printed one, in standard errors of counting 569 rows, since folds overlap."""
    cell = store.cells.get(f"{prefix}/{model or row['model']}/{row['covariance']}")
    return None if cell is None else judge([float(np.mean(cell["folds"]))], row["accuracy"], n_test=569)


def _wdbc(printed: list[dict[str, Any]], store: Store) -> str:
    rows, said = [], []
    for row in printed:
        names = [("wdbc", row["model"])]
        if row["model"] == "ENRBFC":
            names += [("wdbc", "ENRBFC, λ = 0.01"), ("wdbc", "ENRBFC, λ = 1e-6")]
            names += [("two", name) for name in ("ENRBFC", "ENRBFC, λ = 0.01", "ENRBFC, λ = 1e-6")]
        for prefix, name in names:
            cell, verdict = (
                store.cells.get(f"{prefix}/{name}/{row['covariance']}"),
                wdbc_verdict(row, store, prefix, name),
            )
            if cell is None or verdict is None:
                continue
            said += [verdict] if (prefix, name) == names[0] else []
            rows.append(
                [
                    store.mark(f"{prefix}/{name}/{row['covariance']}", name)
                    + (", 2 components given" if prefix == "two" else ""),
                    row["covariance"],
                    f"{row['accuracy']:.2f} with {row['components']}, {row['seconds']} s",
                    f"**{cell['train']:.2f} with {cell['components']}**, {_time(cell['fit_s'])}",
                    f"**{np.mean(cell['folds']):.2f}**",
                    str(verdict),
                ]
            )
    head = ["model", "covariance", "printed", "ours, training rows", "ten-fold", "ten-fold against printed"]
    text = (
        f"\nOf the cells with sizes chosen as there: {tally(said)}; standard errors are those of counting 569 rows.\n"
    )
    return table(head, rows) + text + "\n" + _ahead(store)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f} s"


def _ahead(store: Store) -> str:
    """Whether ENRBFC is ahead of the others, which is what the thesis shows."""
    lines = []
    for shape in ("spherical", "diagonal", "full"):
        found = {k.split("/")[0]: c for k, c in store.under("wdbc/").items() if k.endswith(f"/{shape}")}
        mine, rivals = found.get("ENRBFC"), {k: c for k, c in found.items() if not k.startswith("ENRBFC")}
        if mine is not None and rivals:
            best = max(rivals, key=lambda k: np.mean(rivals[k]["folds"]))
            gap = np.subtract(mine["folds"], rivals[best]["folds"]) if _alike(mine, rivals[best]) else np.array([])
            against = (
                f"{gap.mean():+.2f} ± {standard_error(gap.tolist()):.2f} points over" if len(gap) > 1 else "beside"
            )
            lines.append(
                f"- {shape}: ENRBFC {np.mean(mine['folds']):.2f} %, {against} the best rival ({best}, "
                f"{np.mean(rivals[best]['folds']):.2f} %); on training rows "
                f"{mine['train']:.2f} % against {max(c['train'] for c in rivals.values()):.2f} %; "
                f"components: {mine['components']}."
            )
    note = "\nOne component of ENRBFC is logistic regression: where it is chosen, that is ahead, not a mixture.\n"
    return "\n".join(lines) + "\n" + note


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return len(one["folds"]) == len(other["folds"])


def _several(store: Store) -> str:
    """Sets of several classes: five-fold accuracies, sizes chosen within."""
    cells = store.under("several/")
    if not cells:
        return ""
    sets = sorted({key.split("/")[0] for key in cells})
    names = list(dict.fromkeys(key.split("/")[2] + "|" + key.split("/")[1] for key in sorted(cells)))
    rows = []
    for name in names:
        model, shape = name.split("|")
        shown = []
        for own in sets:
            cell = cells.get(f"{own}/{shape}/{model}")
            shown.append("–" if cell is None else f"{np.mean(cell['folds']):.2f} ± {standard_error(cell['folds']):.2f}")
        rows.append([model, "–" if shape == "none" else shape, *shown])
    head = ["model", "covariance", *(f"{own}, %" for own in sets)]
    text = """## Several classes, in place of table 3-4

Five-fold accuracies (twice, once on segment), sizes from 1 to 6 (GMC: 1 to 3 a class) chosen within each training part;
classes of fewer than ten rows are left out (E. coli 5 of 8 remain, glass 5 of 6). ± is the standard error over folds.

"""
    return text + table(head, rows)
