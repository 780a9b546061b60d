"""Thesis09, chapters 2 and 3: what is measured, and what is said of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from papers.judge import standard_error
from papers.measure import Job, Store
from papers.rows import Claim, Drift, Row, per_split
from papers.thesis09_mixtures import methods

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
SHAPES = ("spherical", "diagonal", "full")
#: How the thesis trains the two networks of table 2-3.
LASER = {"nrbf": "NRBF by gradient", "enrbf": "ENRBF"}
DRAWS = 10
QUICK = {
    "thesis09_mixtures/sin2/ENRBF/0": (), "thesis09_mixtures/gaussians/GMC/0": (),
    "thesis09_mixtures/wdbc/GMC/diagonal": (2, 1), "thesis09_mixtures/laser/1/ENRBF": (),
}  # fmt: skip
DRIFT = {
    "thesis09_mixtures/sin2/ENRBF/0": Drift("error", 1e-3, "EM that ends a step sooner or later"),
    "thesis09_mixtures/gaussians/GMC/0": Drift("score", 0.1, "percent of 10 000 rows: ten may tip"),
    "thesis09_mixtures/wdbc/GMC/diagonal": Drift("folds", 0.4, "percent of 569 rows: two may tip", (2, 1)),
    "thesis09_mixtures/today/laser/1/ENRBF": Drift("folds", 0.05, "a search that ends elsewhere"),
}


def jobs() -> dict[str, Job]:
    found: dict[str, Job] = {}
    for seed in range(DRAWS):
        for name in methods.CLASSIFIERS:
            found[f"gaussians/{name}/{seed}"] = Job(methods.gaussians_cell, (name, seed), seed=seed, variant=name)
        for name in ("two-step NRBF", "ENRBF"):
            found[f"sin2/{name}/{seed}"] = Job(methods.sin2_cell, (name, seed), seed=seed, variant=name)
    for shape in SHAPES:
        for name in methods.CLASSIFIERS:
            found[f"wdbc/{name}/{shape}"] = Job(methods.wdbc_cell, (name, shape), variant=name)
        found[f"wdbc/ENRBFC, λ = 1/{shape}"] = Job(
            methods.wdbc_cell, ("ENRBFC, λ = 1", shape), "λ = 1", variant="ENRBFC"
        )
        one = "ENRBFC, one Newton step"
        found[f"wdbc/{one}/{shape}"] = Job(methods.wdbc_cell, (one, shape), "one Newton step", variant=one)
        found[f"two/ENRBFC/{shape}"] = Job(
            methods.wdbc_cell, ("ENRBFC", shape, 2), "two components given", variant="ENRBFC"
        )
    for name in ("NRBFClassifier", "ENRBFClassifier"):
        found[f"today/{name}"] = Job(methods.today_cell, (name,), "today", variant=name)
    for row in PAPER["table2_3"]["rows"]:
        for name in LASER.values():
            found[f"laser/{row['lags']}/{name}"] = Job(methods.laser_cell, (row["lags"], name), variant=name)
            found[f"today/laser/{row['lags']}/{name}"] = Job(
                methods.laser_today_cell, (row["lags"], name), "today", variant=name
            )
    for name in methods.SEVERAL:
        for model in methods.CLASSIFIERS:
            found[f"several/{name}/{model}"] = Job(
                methods.several_cell, (name, model, "diagonal"), "in place of table 3-4", variant=model
            )
        found[f"several/{name}/logistic regression"] = Job(
            methods.several_cell,
            (name, "logistic regression", ""),
            "in place of table 3-4",
            variant="logistic regression",
        )
    return {f"thesis09_mixtures/{name}": job for name, job in found.items()}


def rows(store: Store) -> Iterator[Row | Claim]:
    for kind, table, where in (
        ("sin2", "figure2", "Figures 2-1 to 2-6"),
        ("gaussians", "figure3", "Figures 3-1 to 3-5"),
    ):
        for row in PAPER[table]["rows"]:
            name = f"thesis09_mixtures/{kind}/{row['model']}/"
            yield Row(where, f"{row['model']}: components", row["components"], per_split(store.under(name), "size"),
                      [name], better="neither")  # fmt: skip
    yield from shown(store)
    yield from laser(store)
    yield from wisconsin(store)
    yield from several(store)


def shown(store: Store) -> Iterator[Claim]:
    """What figures 2-1 to 2-6 and 3-1 to 3-5 are drawn for."""
    edge = {
        name: per_split(store.under(f"thesis09_mixtures/sin2/{name}/"), "boundary")
        for name in ("two-step NRBF", "ENRBF")
    }
    if all(edge.values()):
        outcome = ", ".join(f"{n} {np.mean(v):.3f} ± {standard_error(v):.3f}" for n, v in edge.items())
        yield Claim("Figures 2-1 to 2-6", "ENRBF has the smaller error at the boundaries",
                    float(np.mean(edge["ENRBF"])) < float(np.mean(edge["two-step NRBF"])), outcome,
                    ["thesis09_mixtures/sin2/"])  # fmt: skip
    alike = {
        name: per_split(store.under(f"thesis09_mixtures/gaussians/{name}/"), "as_bayes") for name in methods.CLASSIFIERS
    }
    alike = {name: values for name, values in alike.items() if values}
    if "ENRBFC" in alike and len(alike) > 1:
        outcome = ", ".join(f"{n} {np.mean(v):.1f} ± {standard_error(v):.1f} %" for n, v in alike.items())
        first = max(alike, key=lambda name: np.mean(alike[name])) == "ENRBFC"
        yield Claim("Figures 3-1 to 3-5", "ENRBFC's boundary is nearest to that of Bayes' rule", first, outcome,
                    ["thesis09_mixtures/gaussians/"])  # fmt: skip


def laser(store: Store) -> Iterator[Row | Claim]:
    more = []
    for row in PAPER["table2_3"]["rows"]:
        found = {key: store.cells.get(f"thesis09_mixtures/laser/{row['lags']}/{name}") for key, name in LASER.items()}
        for key, name in LASER.items():
            cells, cell = [f"thesis09_mixtures/laser/{row['lags']}/{name}"], found[key]
            now = store.cells.get(f"thesis09_mixtures/today/laser/{row['lags']}/{name}", {}).get("folds", [])
            what = f"{name}, {row['lags']} lags"
            yield Row("Table 2-3", f"{what}: three-fold error", row[key], cell["folds"] if cell else [], cells, now,
                      better="lower")  # fmt: skip
            size = [cell["components"]] if cell else []
            yield Row("Table 2-3", f"{what}: components", row[f"{key}_components"], size, cells, better="neither")
        if all(found.values()):
            more.append((found["nrbf"]["components"], found["enrbf"]["components"]))  # type: ignore[index]
    if more:
        outcome = "; ".join(f"{a} and {b}" for a, b in more) + " components of NRBF and ENRBF"
        yield Claim("Table 2-3", "NRBF needs more components than ENRBF", all(a > b for a, b in more), outcome,
                    ["thesis09_mixtures/laser/"])  # fmt: skip


def wisconsin(store: Store) -> Iterator[Row | Claim]:
    """Ten-fold accuracies; folds overlap, hence the spread of counting 569 rows."""
    mean = lambda name: [float(np.mean(store.cells[name]["folds"]))] if name in store.cells else []  # noqa: E731
    now = {"ENRBFC": mean("thesis09_mixtures/today/ENRBFClassifier")}
    now["two-step NRBF classifier"] = mean("thesis09_mixtures/today/NRBFClassifier")
    for row in PAPER["table3_3"]["rows"]:
        model, shape = row["model"], row["covariance"]
        name = f"thesis09_mixtures/wdbc/{model}/{shape}"
        yield Row("Table 3-3", f"{model}, {shape}: accuracy, %", row["accuracy"], mean(name), [name],
                  now.get(model, ()), n_test=569)  # fmt: skip
        size = [store.cells[name]["components"]] if name in store.cells else []
        yield Row("Table 3-3", f"{model}, {shape}: components", row["components"], size, [name], better="neither")
        if model == "ENRBFC":
            for other, label in (("two/ENRBFC", "two components given"),
                                 ("wdbc/ENRBFC, one Newton step", "one Newton step an iteration"),
                                 ("wdbc/ENRBFC, λ = 1", "λ = 1")):  # fmt: skip
                name = f"thesis09_mixtures/{other}/{shape}"
                yield Row(f"Table 3-3, ENRBFC with {label}", f"{shape}: accuracy, %", row["accuracy"], mean(name),
                          [name], n_test=569)  # fmt: skip
    yield from on_training_rows(
        store, {r["covariance"]: r["accuracy"] for r in PAPER["table3_3"]["rows"] if r["model"] == "ENRBFC"}
    )
    for shape in SHAPES:
        found = {m: mean(f"thesis09_mixtures/wdbc/{m}/{shape}") for m in methods.CLASSIFIERS}
        if all(found.values()):
            best = max(found, key=lambda m: found[m][0])
            outcome = f"best is {best} with {found[best][0]:.2f} %, ENRBFC has {found['ENRBFC'][0]:.2f} %"
            yield Claim("Table 3-3", f"{shape}: ENRBFC is ahead of the others", best == "ENRBFC", outcome,
                        ["thesis09_mixtures/wdbc/"])  # fmt: skip


def on_training_rows(store: Store, printed: dict[str, float]) -> Iterator[Claim]:
    """The thesis does not say whether its accuracies are of training or of held-out rows."""
    names = {shape: f"thesis09_mixtures/wdbc/ENRBFC/{shape}" for shape in printed}
    cells = {shape: store.cells[name] for shape, name in names.items() if name in store.cells}
    both = {shape: (float(np.mean(cell["folds"])), cell["train"]) for shape, cell in cells.items()}
    if both:
        outcome = ", ".join(f"{s}: {a:.2f} and {b:.2f} % ({printed[s]:g} printed)" for s, (a, b) in both.items())
        yield Claim("Table 3-3", "ENRBFC's printed accuracies are of training rows (within a point of ours)",
                    all(abs(b - printed[s]) < 1 for s, (_, b) in both.items()), f"held-out, training rows: {outcome}",
                    list(names.values()))  # fmt: skip


def several(store: Store) -> Iterator[Claim]:
    """Sets of several classes in place of the hospital's (table 3-4)."""
    for name in methods.SEVERAL:
        found = {k: float(np.mean(c["folds"])) for k, c in store.under(f"thesis09_mixtures/several/{name}/").items()}
        if "ENRBFC" in found:
            outcome = ", ".join(f"{model} {value:.2f} %" for model, value in found.items())
            yield Claim("Table 3-4 (other data)", f"{name}: ENRBFC is ahead of the other mixtures",
                        found["ENRBFC"] >= max(v for k, v in found.items() if k != "logistic regression"), outcome,
                        [f"thesis09_mixtures/several/{name}/"])  # fmt: skip
