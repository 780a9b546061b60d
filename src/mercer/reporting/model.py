"""Contents of the model: columns and their encoding, model selection, kernels and relevance, local models."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Figure, bars, short, shorten
from mercer.reporting.table import MISSING

#: Rows of tables and bars that are shown.
MAX_COLUMNS, MAX_BARS, MAX_CANDIDATES, MAX_MODELS, MAX_LOCAL_COLUMNS = 60, 15, 15, 20, 6
#: How columns were mapped before kernels saw them.
MAPS = {
    "standard": "standardised",
    "bend": "bent by asinh in both tails and standardised",
    "clip": "clipped smoothly",
    "scores": "turned into normal scores",
}


def columns_section(subject: Subject) -> Section:
    """The columns of the table, and how the model encodes them."""
    table, known = subject.table, _known_columns(subject)
    extra = sorted({key for column in known for key in column} - {"name", "missing"})
    rows, numbers = [], []
    for j, name in enumerate(table.names):
        kind, values, missing = _describe_column(subject, j)
        noted = known[j] if known else {}
        rows.append([name, kind, values, f"{missing:.1%}", *(_cell(noted.get(key)) for key in extra)])
        numbers.append({"kind": kind, "missing": missing, **noted, "name": name})
    words = [f"{subject.given_rows} test rows of {len(table.names)} columns. {_maps(subject.estimator)}"]
    if subject.given_rows > table.n_rows:
        words.append(f"{table.n_rows} of them, at even distances, are looked at here.")
    caption = "Columns of the table" + (f", the first {MAX_COLUMNS}" if len(rows) > MAX_COLUMNS else "")
    grid = Grid(caption, ["column", "holds", "values in the test rows", "missing", *extra], rows[:MAX_COLUMNS])
    return Section("columns", "The table", words, {"rows": subject.given_rows, "columns": numbers}, [grid])


def _describe_column(subject: Subject, j: int) -> tuple[str, str, float]:
    """The kind of a column, its values in a few words, and the share of missing ones."""
    table, column = subject.table, subject.table.columns[j]
    if not table.is_numeric(j):
        levels = np.unique(column.astype(str))
        return "levels", f"{len(levels)}: {shorten(', '.join(levels[:5]), 40)}", float(np.mean(column == MISSING))
    finite = column[np.isfinite(column)]
    missing = 1 - len(finite) / len(column)
    if not len(finite):
        return "numbers", "none", missing
    low, high = (table.format_value(j, end) for end in (finite.min(), finite.max()))
    return "numbers", f"{low} to {high}", missing


def _known_columns(subject: Subject) -> list[dict[str, Any]]:
    """The model's notes on each of its columns; empty if its columns are not those of the table."""
    columns = getattr(subject.estimator, "columns_", None) or ()
    same = subject.inner_table is subject.table and len(columns) == len(subject.table.names)
    return [dict(column) for column in columns] if same else []


def _cell(value: Any) -> Any:
    if isinstance(value, np.ndarray | list | tuple):
        return shorten(", ".join(map(str, value)), 40)
    return value


def _maps(model: Any) -> str:
    """How columns become what kernels see, in a sentence."""
    inputs = [part.inputs for part in getattr(model, "expansions_", ())] or [getattr(model, "inputs_", None)]
    if inputs == [None]:
        return ""
    names = []
    for input_map in inputs:
        columns = getattr(input_map, "columns", None)
        kind = str(getattr(columns, "kind", None))
        names.append(MAPS.get(kind, MAPS["standard" if columns is None else "bend"]))
    return f"Kernels see them {'; others '.join(dict.fromkeys(names))}."


def selection_section(subject: Subject) -> Section | None:
    """The candidates of model selection, and their losses on held-out rows."""
    report = getattr(subject.estimator, "tuning_report_", None)
    runs = [line for line in report or [] if isinstance(line, dict) and np.isfinite(line.get("loss", np.nan))]
    if not runs:
        return None
    most = max(int(line["rows"]) for line in runs)
    final = sorted((line for line in runs if line["rows"] == most), key=lambda line: line["loss"])
    others = sorted((line for line in runs if line["rows"] < most), key=lambda line: (-line["rows"], line["loss"]))
    loss = "log loss" if subject.classes is not None else "share of variance not explained"
    seconds = sum(float(line.get("seconds", 0.0)) for line in runs)
    words = [
        f"{len(runs)} candidates were tried, each a column map, a metric and a kernel, on up to {most} rows in "
        f"{short(seconds)} s. The loss on held-out rows decided: {final[0]['candidate']} came out first."
    ]
    grid = Grid(
        f"The best candidates, by {loss} on held-out rows",
        ["candidate", "rows", "loss", "seconds"],
        [
            [str(line["candidate"]), int(line["rows"]), float(line["loss"]), line.get("seconds")]
            for line in [*final, *others][:MAX_CANDIDATES]
        ],
    )
    caption = f"Losses of the last stage of model selection, on {most} rows; the shortest bar won."
    best = final[:MAX_BARS]
    figure = bars([str(line["candidate"]) for line in best], [float(line["loss"]) for line in best], loss, caption)
    return Section("selection", "Model selection", words, {"candidates": runs}, [grid], [figure])


def kernel_section(subject: Subject) -> Section | None:
    """Kernels with their length-scales, and how much predictions depend on each column."""
    model = subject.estimator
    members, relevance = _members(model), getattr(model, "relevance_", None)
    if not members and relevance is None:
        return None
    tables, figures, words = [], [], []
    numbers: dict[str, Any] = {"kernels": members}
    if members:
        rows = [[part["kernel"], part["metric"], part["basis_vectors"], part["weight_norm"]] for part in members]
        tables.append(Grid("Kernels of the model", ["kernel", "metric", "basis vectors", "norm of weights"], rows))
    if relevance is not None and not np.any(relevance):
        words.append("Predictions do not depend on any column.")
    elif relevance is not None:
        words, figure, found = _relevance(subject)
        figures.append(figure)
        numbers |= found
    lengths = {column["name"]: column["length_scale"] for column in getattr(model, "columns_", ())}
    if lengths and not np.isnan(list(lengths.values())).all():
        shortest = sorted(lengths.items(), key=lambda item: item[1])[:MAX_BARS]
        tables.append(Grid("Length-scales of the first kernel, in units of mapped columns", ["column", "ℓ"], shortest))
        numbers["length_scales"] = lengths
    return Section("kernel", "Kernels and relevance", words, numbers, tables, figures)


def _relevance(subject: Subject) -> tuple[list[str], Figure, dict[str, Any]]:
    """The columns' shares in the effect on predictions: words, bars and numbers."""
    relevance, names = subject.relevance, subject.table.names
    order = subject.most_relevant(MAX_BARS)
    positive = relevance[relevance > 0]
    effective = float(np.exp(-(positive * np.log(positive)).sum()))
    first = names[order[0]]
    words = [
        f"{first} matters most: it has {relevance[order[0]]:.0%} of the effect on predictions. The effect is spread as "
        f"over {effective:.1f} equal columns of {len(names)}."
    ]
    idle = [name for name, share in zip(names, relevance, strict=True) if share < 0.01 / len(names)]
    if idle:
        words.append(f"With hardly any effect on predictions: {shorten(', '.join(idle), 200)}.")
    largest = f"{first} first with {short(relevance[order[0]])}"
    caption = f"Relevance of columns: their shares in the effect on predictions; {largest}."
    figure = bars([names[j] for j in order], [relevance[j] for j in order], "relevance", caption)
    numbers = {"relevance": dict(zip(names, relevance, strict=True)), "effective_columns": effective}
    return words, figure, numbers


def _members(model: Any) -> list[dict[str, Any]]:
    """Each kernel model of the average: kernel, metric, basis vectors and weights."""
    found = []
    for part in getattr(model, "expansions_", ()):
        transform = part.inputs.transform
        metric = "a full matrix"
        if transform is None or transform.ndim == 1:
            metric = "none" if transform is None else "a factor for each column"
        found.append(_member(part.kernel, metric, len(part.basis), float(np.linalg.norm(part.weights))))
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
    parts = [kernel_name(part) for part in kernel.parts().values()] if hasattr(kernel, "parts") else []
    if parts:
        return (" × " if type(kernel).__name__ == "Product" else " + ").join(parts)
    lengths = np.atleast_1d(np.asarray(getattr(kernel, "length_scale", []), dtype=float))
    name = type(kernel).__name__
    if not len(lengths):
        return name
    if len(lengths) == 1:
        return f"{name} (length-scale {short(lengths[0])})"
    return f"{name} (length-scales {short(lengths.min())} to {short(lengths.max())})"


def local_section(subject: Subject) -> Section | None:
    """The components of a mixture as local models that one can read."""
    model = subject.estimator
    if not hasattr(model, "means_") or not hasattr(model, "weights_"):
        return None
    means, shares, names = np.atleast_2d(model.means_), np.asarray(model.weights_), subject.inner_table.names
    slopes = _slopes(model, (len(shares), len(names)))
    columns = np.arange(min(MAX_LOCAL_COLUMNS, len(names)))
    if slopes is not None:
        spread = np.asarray([_spread(column) for column in subject.inner_table.columns])
        columns = np.argsort(-np.abs(slopes).max(0) * spread)[:MAX_LOCAL_COLUMNS]
    variances = np.asarray(getattr(model, "noise_variances_", []))
    noise = np.sqrt(variances) if variances.ndim == 1 and len(variances) == len(shares) else None
    head = ["model", "share", *(f"centre {names[j]}" for j in columns)]
    head += [f"slope {names[j]}" for j in columns] if slopes is not None else []
    head += ["noise"] if noise is not None else []
    rows: list[list[Any]] = []
    for k in np.argsort(-shares)[:MAX_MODELS]:
        row: list[Any] = [int(k) + 1, f"{shares[k]:.1%}", *means[k, columns].tolist()]
        row += slopes[k, columns].tolist() if slopes is not None else []
        row += [float(noise[k])] if noise is not None else []
        rows.append(row)
    words = [
        f"The model is {len(shares)} local models, each responsible around its centre. "
        + ("A slope is the change of the prediction with one unit of the column there." if slopes is not None else "")
    ]
    numbers = {"shares": shares, "centres": means} | ({"slopes": slopes} if slopes is not None else {})
    return Section("local", "Local models", words, numbers, [Grid("Local models, the largest first", head, rows)])


def _slopes(model: Any, shape: tuple[int, int]) -> np.ndarray | None:
    """The slopes of local models (models × columns), where a model has one output and slopes."""
    coef = np.asarray(getattr(model, "coef_", []))
    return coef if coef.shape == shape else None


def _spread(column: np.ndarray) -> float:
    return float(np.nanstd(column)) if column.dtype.kind == "f" else 0.0
