"""Table 2-3 beside ours: errors, sizes and how they grow with the lags, times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from judge import Verdict, judge, tally
from measure import Store

LASER = ("NRBF by EM", "NRBF by gradient", "ENRBF", "ENRBF by gradient")
#: How the thesis trains each of the two.
AS_THERE = {"nrbf": "NRBF by gradient", "enrbf": "ENRBF"}

NOTE = """
A cell of ours: **cross-validated RMSE with the number of components chosen**; RMSE on the training rows / one step
ahead on the next 2000 values of the series, which the thesis does not use. Diagonal covariances, as in section 2.5.
Gradient training is L-BFGS over all parameters from where EM ends.

"""


def runs(store: Store, lag: int, name: str) -> list[dict[str, Any]]:
    """The runs of a model with the default λ and with λ = 1."""
    keys = (f"laser/{lag}/{name}", f"laser/{lag}/{name}, λ = 1")
    return [store.cells[key] for key in keys if key in store.cells]


def better(store: Store, lag: int, name: str) -> dict[str, Any] | None:
    """Of the runs of a model the one of smaller cross-validated error."""
    return min(runs(store, lag, name), key=lambda cell: _at(cell)[0], default=None)


def _at(found: dict[str, Any]) -> tuple[float, float]:
    """The cross-validated error at the size chosen, and its standard error; fewer may be in use than were asked for."""
    i = int(np.argmin([abs(size - found["components"]) for size in found["sizes"]]))
    return found["cv"][i], found["cv_error"][i]


def verdict(store: Store, row: dict[str, Any], key: str) -> Verdict | None:
    """Our cross-validated error, trained as there, beside the printed one; standard errors over three folds."""
    found = better(store, row["lags"], AS_THERE[key])
    if found is None:
        return None
    error, spread = _at(found)
    printed = row[key]
    return Verdict(error, printed, (printed - error) / spread) if spread else judge([error], printed, higher=False)


def laser_verdicts(printed: list[dict[str, Any]], store: Store) -> dict[str, list[Verdict]]:
    """A verdict for each number of lags, of both models as the thesis trains them."""
    found = {key: [verdict(store, row, key) for row in printed] for key in AS_THERE}
    return {AS_THERE[key]: [one for one in said if one is not None] for key, said in found.items()}


def laser_lines(printed: list[dict[str, Any]], store: Store, table: Callable[..., str]) -> str:
    rows, equal, grown = [], [], []
    said = laser_verdicts(printed, store)
    before: dict[str, int] = {}
    for row in printed:
        lag = row["lags"]
        found = {name: cell for name in LASER if (cell := better(store, lag, name)) is not None}
        if len(found) < len(LASER):
            continue
        nrbf, enrbf = (f"{row[key]:.2f} with {row[key + '_components']}" for key in AS_THERE)
        shown = [_cell(found[name]) for name in LASER]
        rows.append([store.mark(f"laser/{lag}/", str(lag)), nrbf, *shown[:2], enrbf, *shown[2:]])
        line, growth = [str(lag)], [str(lag)]
        for mine, others in (("ENRBF", LASER[:2]), ("ENRBF by gradient", LASER[1:2])):
            line.append(f"{_at(found[mine])[0]:.2f} with **{found[mine]['components']}**")
            line += [_enough(runs(store, lag, other), _at(found[mine])[0]) for other in others]
        equal.append(line)
        for key, name in AS_THERE.items():
            own = verdict(store, row, key)
            assert own is not None
            k, spent = found[name]["components"], found[name]["fit_s"]
            times = f"{'–' if spent is None else format(spent, '.2f')} ({row[key + '_s']})"
            ratio = f"{k / before[name]:.1f}" if name in before else "–"
            theirs = f"{row[key + '_components'] / before[key]:.1f}" if key in before else "–"
            before |= {name: k, key: row[key + "_components"]}
            growth += [str(own), f"{ratio} ({theirs})", times]
        grown.append(growth)
    head = ["lags", "NRBF printed", "by EM", "by gradient", "ENRBF printed", "by EM", "by gradient"]
    needs = "NRBF by gradient needs"
    own_head = ["lags", "ENRBF by EM", "NRBF by EM needs", needs, "ENRBF by gradient", needs]
    each = ["error against printed", "ratio of sizes (printed)", "training s (printed)"]
    second = ["lags", *(f"NRBF by gradient: {one}" for one in each), *(f"ENRBF by EM: {one}" for one in each)]
    text = table(head, rows) + NOTE + table(second, grown)
    text += f"\nNRBF by gradient: {tally(said['NRBF by gradient'])}. ENRBF by EM: {tally(said['ENRBF'])}. "
    text += "Standard errors are those of three folds.\n"
    text += "\nComponents needed for ENRBF's cross-validated error, the thesis' claim being that NRBF needs more:\n\n"
    return text + table(own_head, equal) + _claim(printed, store)


def _cell(found: dict[str, Any]) -> str:
    return f"**{_at(found)[0]:.2f} with {found['components']}**; {found['train']:.2f} / {found['later']:.2f}"


def _enough(cells: list[dict[str, Any]], error: float) -> str:
    """The smallest size of any of the runs whose cross-validated error is no larger."""
    size = _least(cells, error)
    return f"**{size}**" if size is not None else f"more than {cells[0]['sizes'][-1]}"


def _least(cells: list[dict[str, Any]], error: float) -> int | None:
    sizes = [size for cell in cells for size, own in zip(cell["sizes"], cell["cv"], strict=True) if own <= error]
    return min(sizes, default=None)


def needs(printed: list[dict[str, Any]], store: Store, mine: str, other: str) -> tuple[int, int, int]:
    """At how many lags another model needs more, as many, fewer components for the error of mine."""
    more = fewer = equal = 0
    for row in printed:
        found = better(store, row["lags"], mine)
        if found is None or not runs(store, row["lags"], other):
            continue
        needed = _least(runs(store, row["lags"], other), _at(found)[0])
        more += needed is None or needed > found["components"]
        equal += needed == found["components"]
        fewer += needed is not None and needed < found["components"]
    return more, equal, fewer


def _claim(printed: list[dict[str, Any]], store: Store) -> str:
    """At how many lags NRBF needs more components than ENRBF for its error, in each pairing of trainings."""
    lines = []
    for mine, other in (
        ("ENRBF", "NRBF by gradient"),
        ("ENRBF", "NRBF by EM"),
        ("ENRBF by gradient", "NRBF by gradient"),
    ):
        more, equal, fewer = needs(printed, store, mine, other)
        as_there = ", the thesis' pairing" if (mine, other) == ("ENRBF", "NRBF by gradient") else ""
        name = mine if "gradient" in mine else f"{mine} by EM"
        lines.append(f"- {other} against {name}{as_there}: more at {more} lags, as many at {equal}, fewer at {fewer}.")
    last = "One component of ENRBF is linear regression: there nothing larger was found to be worth it."
    return "\n" + "\n".join(lines) + f"\n\n{last}\n"
