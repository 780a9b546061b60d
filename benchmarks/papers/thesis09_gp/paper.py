"""Thesis09, chapter 5: what is measured, and what is said of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from papers.measure import Job, Store
from papers.rows import Claim, Drift, Row, per_split
from papers.thesis09_gp import methods

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
PAPER["published"] = {key: value for key, value in PAPER["usps"].items() if key != "n_test"}
SETS = {"ecoli": "Table 5-4", "spam": "Table 5-7", "published": "Table 5-8", "usps": "Table 5-8, other splits"}
#: Models whose length-scales stand beside those of SPGP, by the names of the text.
OTHERS = {"full": "the full model", "sd": "SD of 100 rows", "pp": "PP"}
KINDS = {"sd": "SD", "pp": "SR/PP", "spgp": "SPGP"}
SPLITS, DRAWS = 3, 10
#: Sizes at which the package's default is measured beside.
TODAY = {"ecoli": 64, "spam": 128, "usps": 128, "published": 128}
QUICK = {
    f"thesis09_gp/{name}": ()
    for name in ("ecoli/4/0/sd", "spam/4/0/sd", "usps/4/0/sd", "scales/none/0", "boundary/0", "alone/0", "alm/0")
} | ({"thesis09_gp/published/4/0/sd": ()} if methods.has_published() else {})
DRIFT = {
    "thesis09_gp/ecoli/4/0/sd": Drift("accuracy", 1.0, "percent of 336 rows: three may tip"),
    "thesis09_gp/spam/4/0/sd": Drift("accuracy", 0.2, "percent of 1500 rows: three may tip"),
    "thesis09_gp/usps/4/0/sd": Drift("accuracy", 0.4, "percent of 773 rows: three may tip"),
    "thesis09_gp/boundary/0": Drift("spgp_as_full", 0.1, "percent of 10 000 rows: ten may tip"),
}


def jobs() -> dict[str, Job]:
    found = {"alm/0": Job(methods.alm_cell, (0,))}
    for seed in range(DRAWS):
        found[f"alone/{seed}"] = Job(methods.alone_cell, (seed,), seed=seed)
        found[f"boundary/{seed}"] = Job(methods.boundary_cell, (seed,), seed=seed)
        for prior, name in ((None, "none"), (2.0, "prior")):
            protocol = "printed" if prior is None else "with the weak prior"
            found[f"scales/{name}/{seed}"] = Job(methods.scales_cell, (seed, prior), protocol, seed)
        for kind in OTHERS:
            found[f"scales/{kind}/{seed}"] = Job(methods.scales_cell, (seed, None, kind), "printed", seed, kind)
    at_hand = [name for name in SETS if name != "published" or methods.has_published()]
    for seed in range(SPLITS):
        for name in at_hand:
            for m in PAPER[name]["sizes"]:
                found[f"{name}/{m}/{seed}/spgp"] = Job(methods.spgp_cell, (name, m, seed), seed=seed)
                found[f"{name}/{m}/{seed}/sd"] = Job(methods.subset_cell, (name, m, seed), seed=seed)
            found[f"{name}/today/{seed}"] = Job(methods.today_cell, (name, TODAY[name], seed), "today", seed)
            if name != "ecoli" or seed == 0:
                found[f"{name}/full/{seed}"] = Job(methods.full_cell, (name, seed), seed=seed)
        found[f"pixels/{seed}"] = Job(methods.pixels_cell, (seed,), seed=seed)
        for which in ("thesis", "voted"):
            found[f"words/{which}/{seed}"] = Job(methods.words_cell, (seed, which), which, seed)
    return {f"thesis09_gp/{name}": job for name, job in found.items()}


def rows(store: Store) -> Iterator[Row | Claim]:
    cells = lambda name: store.under(f"thesis09_gp/{name}")  # noqa: E731
    for name, where in SETS.items():
        printed, n_test = PAPER[name], PAPER[name].get("n_test")
        now = per_split(cells(f"{name}/today/"), "accuracy")
        for kind, label in KINDS.items():
            for m, value in zip(printed["sizes"], printed[kind], strict=True):
                found = {
                    k: c for k, c in cells(f"{name}/{m}/").items() if k.endswith("spgp" if kind == "spgp" else "sd")
                }
                ours = per_split(found, "pp_accuracy" if kind == "pp" else "accuracy")
                yield Row(where, f"{label}, M = {m}: accuracy, %", value, ours, [f"thesis09_gp/{name}/{m}/"],
                          now if m == TODAY[name] and kind == "spgp" else (), n_test=n_test)  # fmt: skip
        full = per_split(cells(f"{name}/full/"), "accuracy")
        yield Row(where, "full model: accuracy, %", printed["full"][0], full, [f"thesis09_gp/{name}/full/"],
                  n_test=n_test)  # fmt: skip
        yield from sooner(store, name, where, full)
    yield from chosen_inputs(store)
    yield from boundaries(store)


def sooner(store: Store, name: str, where: str, full: list[float]) -> Iterator[Claim]:
    """The thesis' argument: sparse models come close to the full one in less time."""
    found = {}
    for m in PAPER[name]["sizes"]:
        own = {k: c for k, c in store.under(f"thesis09_gp/{name}/{m}/").items() if k.endswith("spgp")}
        if own and full:
            found[m] = (np.mean(per_split(own, "accuracy")), np.mean(per_split(own, "train_s")))
    spent = per_split(store.under(f"thesis09_gp/{name}/full/"), "train_s")
    near = [m for m, (accuracy, _) in found.items() if accuracy >= np.mean(full) - 1]
    if found and spent:
        share = found[near[0]][1] / np.mean(spent) if near else np.nan
        outcome = f"at M = {near[0]}, in {share:.2g} times its training time" if near else "at no size"
        what = "SPGP comes within a point of the full model in less time"
        yield Claim(where, what, bool(near) and share < 1, outcome, [f"thesis09_gp/{name}/"])


def chosen_inputs(store: Store) -> Iterator[Row | Claim]:
    cells = lambda name: store.under(f"thesis09_gp/{name}")  # noqa: E731
    labels = {"none": "without a prior", "prior": "with the package's weak prior"} | OTHERS
    for key, label in labels.items():
        scales = [cell["length_scales"] for cell in cells(f"scales/{key}/").values()]
        if scales:
            last = sum(set(np.argsort(s)[-2:]) == {4, 5} for s in scales)
            yield Claim("Table 5-3", f"noise has the longest length-scales ({label})", last == len(scales),
                        f"in {last} of {len(scales)} draws", [f"thesis09_gp/scales/{key}/"])  # fmt: skip
    for key, value in PAPER["artificial"]["alone"].items():
        yield Row("Section 5.3.1", f"{key} alone, full model: accuracy, %", value, per_split(cells("alone/"), key),
                  ["thesis09_gp/alone/"], n_test=200)  # fmt: skip
    yield Row("Section 5.3.2", "E. coli by alm1 and alm2: accuracy, %", PAPER["ecoli"]["alm"],
              per_split(cells("alm/"), "accuracy"), ["thesis09_gp/alm/"])  # fmt: skip
    yield from sites(store)
    for which, label in (("thesis", "the thesis' 13 words"), ("voted", "13 words by ARDSelector")):
        yield Row("Section 5.3.4", f"spam by {label}: accuracy, %", PAPER["spam"]["words"],
                  per_split(cells(f"words/{which}/"), "accuracy"), [f"thesis09_gp/words/{which}/"],
                  n_test=1500)  # fmt: skip
    voted = cells("words/voted/").values()
    if voted:
        shared = [len(set(methods.WORDS) & set(cell["words"])) for cell in voted]
        outcome = f"{', '.join(map(str, shared))} of 13 in {len(shared)} splits"
        yield Claim("Section 5.3.4", "votes choose the thesis' words", min(shared) >= 7, outcome,
                    ["thesis09_gp/words/voted/"])  # fmt: skip
    for n, (value, _) in PAPER["usps"]["pixels"].items():
        yield Row("Section 5.3.5", f"USPS by {n} pixels: accuracy, %", value,
                  per_split(cells("pixels/"), f"accuracy_{n}"), ["thesis09_gp/pixels/"], n_test=773)  # fmt: skip


def sites(store: Store) -> Iterator[Claim]:
    """Section 5.3.2: inputs by relevance, site by site."""
    full = store.cells.get("thesis09_gp/ecoli/full/0")
    if not full:
        return
    inputs = ("mcg", "gvh", "lip", "chg", "aac", "alm1", "alm2")
    order = ("cp", "im", "pp", "imU", "om", "omL", "imL", "imS")
    for site, named in PAPER["ecoli"]["sites"].items():
        relevance = full["relevance"][order.index(site)]
        first = [inputs[j] for j in np.argsort(relevance)[::-1][:4]]
        what = f"E. coli, {site}: {' and '.join(named)} beside alm1 and alm2 matter"
        yield Claim("Section 5.3.2", what, set(named) <= set(first), f"first four: {', '.join(first)}",
                    ["thesis09_gp/ecoli/full/"])  # fmt: skip


def boundaries(store: Store) -> Iterator[Claim]:
    found = list(store.under("thesis09_gp/boundary/").values())
    if found:
        nearer = sum(min(c["pp_as_full"], c["spgp_as_full"]) > c["sd_as_full"] for c in found)
        mean = {k: np.mean([c[f"{k}_as_full"] for c in found]) for k in KINDS}
        outcome = f"in {nearer} of {len(found)} draws; " + ", ".join(f"{KINDS[k]} {v:.1f} %" for k, v in mean.items())
        yield Claim("Figures 5-1 to 5-4", "SR/PP and SPGP are nearer to the full model than SD", nearer == len(found),
                    outcome, ["thesis09_gp/boundary/"])  # fmt: skip
