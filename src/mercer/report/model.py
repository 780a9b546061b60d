"""What is inside the model: columns and what was done to them, the race, kernels and relevance, local models."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import bars, short, shortened

#: Rows of tables and bars that are shown.
MOST_COLUMNS, MOST_BARS, MOST_CANDIDATES, MOST_MODELS = 60, 15, 15, 20


def columns_section(subject: Subject) -> Section:
    """The columns of the table, and what the model makes of them."""
    table, known = subject.table, _own_columns(subject)
    rows, numbers = [], []
    extra = sorted({key for one in known for key in one} - {"name", "missing"})
    for j, name in enumerate(table.names):
        column = table.columns[j]
        if table.is_numeric(j):
            finite = column[np.isfinite(column)]
            missing, kind = 1 - len(finite) / len(column), "numbers"
            values = f"{table.said(j, finite.min())} to {table.said(j, finite.max())}" if len(finite) else "none"
        else:
            levels = np.unique(column.astype(str))
            missing, kind = float(np.mean(column == "missing")), "levels"
            values = f"{len(levels)}: {shortened(', '.join(levels[:5]), 40)}"
        own = known[j] if known else {}
        rows.append([name, kind, values, f"{missing:.1%}", *(_cell(own.get(key)) for key in extra)])
        numbers.append({"kind": kind, "missing": missing, **own, "name": name})
    words = [f"{subject.given_rows} test rows of {len(table.names)} columns. {_maps(subject.final)}"]
    if subject.given_rows > table.n_rows:
        words.append(f"{table.n_rows} of them, at even distances, are looked at here.")
    head = ["column", "holds", "values in the test rows", "missing", *extra]
    grid = Grid(
        "Columns of the table" + (", the first 60" if len(rows) > MOST_COLUMNS else ""), head, rows[:MOST_COLUMNS]
    )
    return Section("columns", "The table", words, {"rows": subject.given_rows, "columns": numbers}, [grid])


def _own_columns(subject: Subject) -> list[dict[str, Any]]:
    """What the model itself says of each of its columns, in the order of the table's; nothing of other tables."""
    own = getattr(subject.final, "columns_", None)
    known = own is not None and subject.seen is subject.table and len(own) == len(subject.table.names)
    return [dict(one) for one in own or ()] if known else []


def _cell(value: Any) -> Any:
    if isinstance(value, np.ndarray | list | tuple):
        return shortened(", ".join(str(one) for one in value), 40)
    return value


def _maps(model: Any) -> str:
    """How columns become what kernels see, in a sentence."""
    what = {
        "standard": "standardised",
        "bend": "bent by asinh in both tails and standardised",
        "clip": "clipped smoothly",
        "scores": "turned into normal scores",
    }
    inputs = [one.inputs for one in getattr(model, "expansions_", ())] or [getattr(model, "inputs_", None)]
    if inputs == [None]:
        return ""
    said = []
    for one in inputs:
        kind = getattr(getattr(one, "columns", None), "kind", None)
        bent = getattr(one, "columns", None) is not None
        said.append(what.get(str(kind), what["bend"] if bent else what["standard"]))
    distinct = list(dict.fromkeys(said))
    return f"Kernels see them {'; others '.join(distinct)}."


def race_section(subject: Subject) -> Section | None:
    """The candidates that ran against each other, and their losses on rows that were not fitted."""
    report = getattr(subject.final, "tuning_report_", None)
    runs = [one for one in report or [] if isinstance(one, dict) and np.isfinite(one.get("loss", np.nan))]
    if not runs:
        return None
    most = max(int(one["rows"]) for one in runs)
    final = sorted((one for one in runs if one["rows"] == most), key=lambda one: one["loss"])
    others = sorted((one for one in runs if one["rows"] < most), key=lambda one: (-one["rows"], one["loss"]))
    shown = [*final, *others][:MOST_CANDIDATES]
    loss = "log loss" if subject.classes is not None else "share of variance not explained"
    words = [
        f"{len(runs)} candidates ran, each a column map, a metric and a kernel, on up to {most} rows in "
        f"{short(sum(float(one.get('seconds', 0.0)) for one in runs))} s. Rows that were not fitted decided: "
        f"{final[0]['candidate']} came out first."
    ]
    grid = Grid(
        f"The best of the race, by {loss} on rows left out",
        ["candidate", "rows", "loss", "seconds"],
        [[str(one["candidate"]), int(one["rows"]), float(one["loss"]), one.get("seconds")] for one in shown],
    )
    says = f"Losses of the last round of the race on {most} rows; the shortest bar won."
    best = final[:MOST_BARS]
    drawn = bars([str(one["candidate"]) for one in best], [float(one["loss"]) for one in best], loss, says)
    return Section("race", "The race", words, {"candidates": runs}, [grid], [Figure(drawn, says)])


def kernel_section(subject: Subject) -> Section | None:
    """Kernels with their length-scales, and how much predictions depend on each column."""
    model = subject.final
    members = _members(model)
    own = getattr(model, "relevance_", None)
    if not members and own is None:
        return None
    tables, figures, words = [], [], []
    numbers: dict[str, Any] = {"kernels": members}
    if members:
        rows = [[one["kernel"], one["metric"], one["basis_vectors"], one["weight_norm"]] for one in members]
        tables.append(Grid("Kernels of the model", ["kernel", "metric", "basis vectors", "norm of weights"], rows))
    if own is not None and not np.any(own):
        words.append("Predictions do not depend on any column.")
    elif own is not None:
        relevance, names = subject.relevance, subject.table.names
        order = subject.most_relevant(MOST_BARS)
        effective = float(np.exp(-(relevance[relevance > 0] * np.log(relevance[relevance > 0])).sum()))
        words.append(
            f"{names[order[0]]} matters most: it has {relevance[order[0]]:.0%} of the effect on predictions. The "
            f"effect is spread as over {effective:.1f} equal columns of {len(names)}."
        )
        idle = [names[j] for j in range(len(names)) if relevance[j] < 0.01 / len(names)]
        if idle:
            words.append(f"With hardly any effect on predictions: {shortened(', '.join(idle), 200)}.")
        largest = f"{names[order[0]]} first with {short(relevance[order[0]])}"
        says = f"Relevance of columns: their shares in the effect on predictions; {largest}."
        drawn = bars([names[j] for j in order], [relevance[j] for j in order], "relevance", says)
        figures.append(Figure(drawn, says))
        numbers |= {"relevance": dict(zip(names, relevance, strict=True)), "effective_columns": effective}
    metric = getattr(model, "metric_", None)
    if metric is not None and len(metric) == len(subject.seen.names):
        falls = np.diag(metric)
        lengths = np.where(falls > 0, 1 / np.sqrt(np.where(falls > 0, falls, 1.0)), np.inf)
        shortest = np.argsort(lengths)[:MOST_BARS]
        rows = [[subject.seen.names[j], float(lengths[j])] for j in shortest]
        tables.append(Grid("Length-scales of the first kernel, in units of mapped columns", ["column", "ℓ"], rows))
        numbers["length_scales"] = dict(zip(subject.seen.names, lengths, strict=True))
    return Section("kernel", "Kernels and relevance", words, numbers, tables, figures)


def _members(model: Any) -> list[dict[str, Any]]:
    """Each kernel model of the average: kernel, metric, basis vectors and weights."""
    found = []
    for one in getattr(model, "expansions_", ()):
        turn = one.inputs.transform
        metric = "none" if turn is None else "a factor for each column" if turn.ndim == 1 else "a full matrix"
        found.append(_member(one.kernel, metric, len(one.basis), float(np.linalg.norm(one.weights))))
    if not found and hasattr(model, "kernel_"):
        kernels = model.kernel_ if isinstance(model.kernel_, list | tuple) else [model.kernel_]
        size = len(model.basis_) if hasattr(model, "basis_") else None
        found = [_member(kernel, "length-scales", size, None) for kernel in kernels]
    return found


def _member(kernel: Any, metric: str, size: int | None, norm: float | None) -> dict[str, Any]:
    return {"kernel": kernel_name(kernel), "metric": metric, "basis_vectors": size, "weight_norm": norm}


def kernel_name(kernel: Any) -> str:
    """A kernel in a few words: its formula of parts, with a length-scale where there is only one.

    >>> from mercer.kernels import Bias, Gaussian
    >>> kernel_name(2.0 * Gaussian([1.0, 3.0]) + Bias())
    'Gaussian (length-scales 1 to 3) + Bias'
    """
    parts = [kernel_name(one) for one in kernel.parts().values()] if hasattr(kernel, "parts") else []
    if parts:
        return (" × " if type(kernel).__name__ == "Product" else " + ").join(parts)
    lengths = np.atleast_1d(np.asarray(getattr(kernel, "length_scale", []), dtype=float))
    name = type(kernel).__name__
    if not len(lengths):
        return name
    ends = short(lengths.min()) if len(lengths) == 1 else f"s {short(lengths.min())} to {short(lengths.max())}"
    return f"{name} (length-scale{ends})" if len(lengths) > 1 else f"{name} (length-scale {ends})"


def local_section(subject: Subject) -> Section | None:
    """The components of a mixture as local models that one can read."""
    model = subject.final
    if not hasattr(model, "means_") or not hasattr(model, "weights_"):
        return None
    means, shares = np.atleast_2d(model.means_), np.asarray(model.weights_)
    names = subject.seen.names
    coef = np.asarray(model.coef_) if hasattr(model, "coef_") else None
    coef = coef if coef is not None and coef.shape == (len(shares), len(names)) else None
    strength = (
        np.abs(coef).max(0) * np.asarray([_spread(c) for c in subject.seen.columns]) if coef is not None else None
    )
    order = np.argsort(-strength)[:6] if strength is not None else np.arange(min(6, len(names)))
    head = ["model", "share", *(f"centre {names[j]}" for j in order)]
    noise = np.asarray(getattr(model, "noise_variances_", []))
    rows: list[list[Any]] = []
    for k in np.argsort(-shares)[:MOST_MODELS]:
        row: list[Any] = [int(k) + 1, f"{shares[k]:.1%}", *(float(means[k, j]) for j in order)]
        if coef is not None:
            row += [float(coef[k, j]) for j in order]
        if noise.ndim == 1 and len(noise) == len(shares):
            row.append(float(np.sqrt(noise[k])))
        rows.append(row)
    head += [f"slope {names[j]}" for j in order] if coef is not None else []
    head += ["noise"] if noise.ndim == 1 and len(noise) == len(shares) else []
    words = [
        f"The model is {len(shares)} local models, each responsible around its centre. "
        + ("A slope is the change of the answer with one unit of the column there." if coef is not None else "")
    ]
    numbers = {"shares": shares, "centres": means} | ({"slopes": coef} if coef is not None else {})
    return Section("local", "Local models", words, numbers, [Grid("Local models, the largest first", head, rows)])


def _spread(column: np.ndarray) -> float:
    return float(np.nanstd(column)) if column.dtype.kind == "f" else 0.0
