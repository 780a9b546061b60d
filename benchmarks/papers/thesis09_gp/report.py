"""Writes `results.md` of chapter 5: ours beside the printed numbers, times beside accuracies, verdicts by the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from judge import Verdict, judge, tally
from measure import Store

HEAD = """# Thesis09, chapter 5: sparse Gaussian process classifiers

`MERCER_DATA=… python benchmarks/papers/thesis09_gp/run.py` writes this page; ours, with the printed number in brackets.

- Every model has three starts of at most 62 steps each, the package's default (SPGP: 50 of Adam and 12 of L-BFGS; above
  200 inducing inputs a hundred of them first, then fewer steps on all). SR/PP takes kernel and rows from SD, as in the
  thesis, and its seconds are those beyond SD's. The thesis says "several random initializations" and conjugate
  gradients.
- The kernel is variance × ARD Gaussian + constant; the thesis has no constant. Its squashing function is the logistic
  one, ours too; the probit of its review (eq. 4.9) is not offered. `ARDSelector`, which votes as in section 5.3.4, asks
  three SPGP models by default and any others that are given.
- The weak prior on length-scales (`length_scale_prior=2.0`, the package's default, a standard deviation of their
  logarithms around their mean) is on but for the second line of table 5-3; the thesis has none.
- The thesis has one random split, which is not known: ours are means over several, the same at every size. A verdict
  is the difference in standard errors, the printed number being as uncertain as one of our splits. E. coli is tested on
  its training rows, so that only starts differ and standard errors are small; there a longer search fits closer: three
  starts of 250 steps, which no other model had, gave SPGP 92.26 % at M = 256 in an earlier version of this table.
- Seconds are those of one x86 core with as many processes as cores beside it, of one H200 for spam from M = 1024 on,
  there in the third split of a busier one, twice as long; printed ones of 2009.
- The full model of spam stays below the printed accuracy, on a GPU and to the end of its search; why is not known.
"""
KINDS = {"sd": "SD", "pp": "SR/PP", "spgp": "SPGP"}


def write(paper: dict[str, Any], store: Store, target: Path) -> None:
    lines = [HEAD + f"- {store.versions()}"]
    for name in ("ecoli", "spam", "usps"):
        lines += _table(name, paper[name], store)
    lines += _scales(paper["artificial"], store) + _alone(paper["artificial"], store) + boundaries(store)
    lines += _alm(paper["ecoli"], store) + _words(paper["spam"], store) + _pixels(paper["usps"], store)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def cells_of(name: str, printed: dict[str, Any], store: Store) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """For each size the cells of every kind, of those splits alone that every size has."""
    found: dict[int, dict[str, dict[str, dict[str, Any]]]] = {}
    for m in printed["sizes"]:
        own: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        for key, cell in store.under(f"{name}/{m}/").items():
            seed, kind = key.split("/")
            own[kind][seed] = cell
            if kind == "sd":
                same = {k: cell[f"pp_{k}"] for k in ("accuracy", "train_s", "evaluate_s")}
                own["pp"][seed] = same | {"device": cell.get("device")}
        if all(own.values()):
            found[m] = own
    common = set.intersection(*(set(one) for own in found.values() for one in own.values())) if found else set()
    return {m: {kind: [own[kind][s] for s in sorted(common)] for kind in KINDS} for m, own in found.items()}


def verdicts(name: str, printed: dict[str, Any], store: Store) -> dict[str, list[Verdict]]:
    """One verdict for each size of each kind."""
    found = cells_of(name, printed, store)
    n_test, out = printed.get("n_test"), {}
    for kind in KINDS:
        out[kind] = [
            judge([c["accuracy"] for c in cells[kind]], printed[kind][printed["sizes"].index(m)], n_test=n_test)
            for m, cells in found.items()
        ]
    full = [cell["accuracy"] for cell in store.under(f"{name}/full/").values()]
    return out | ({"full": [judge(full, printed["full"][0], n_test=n_test)]} if full else {})


def _table(name: str, printed: dict[str, Any], store: Store) -> list[str]:
    found, said = cells_of(name, printed, store), verdicts(name, printed, store)
    if not found:
        return []
    n = len(next(iter(found.values()))["sd"])
    lines = [
        f"\n## {printed['where']}: {printed['what']}\n",
        f"Means over {n} {'starts' if name == 'ecoli' else 'splits'}.\n",
    ]
    lines += ["| M | " + " | ".join(f"{KINDS[k]} %" for k in KINDS) + " | SPGP against printed | ahead |"]
    lines += ["|---" * 6 + "|"]
    ahead = 0
    for row, (m, cells) in enumerate(found.items()):
        i = printed["sizes"].index(m)
        means = {kind: float(np.mean([c["accuracy"] for c in cells[kind]])) for kind in KINDS}
        first = max(means, key=lambda kind: means[kind])
        ahead += first == "spgp"
        shown = [f"{means[kind]:.2f} ({printed[kind][i]:.2f})" for kind in KINDS]
        label = store.mark(f"{name}/{m}/", str(m))
        lines.append(f"| {label} | " + " | ".join(shown) + f" | {said['spgp'][row]} | {KINDS[first]} |")
    lines += [
        "\n"
        + "; ".join(f"{KINDS[kind]}: {tally(said[kind])}" for kind in KINDS)
        + f". SPGP is ahead at {ahead} of {len(found)} sizes.\n"
    ]
    lines += ["| M | " + " | ".join(f"{KINDS[k]} training s | evaluation s" for k in KINDS) + " |", "|---" * 7 + "|"]
    for m, cells in found.items():
        i, shown = printed["sizes"].index(m), []
        on_gpu = any(c.get("device") == "cuda" for c in cells["spgp"])
        for kind in KINDS:
            timed = [c for c in cells[kind] if (c.get("device") == "cuda") == on_gpu]
            for key, there in (("train_s", "train"), ("evaluate_s", "evaluate")):
                shown.append(f"{np.mean([c[key] for c in timed]):.3g} ({printed[f'{kind}_{there}'][i]:g})")
        label = store.mark(f"{name}/{m}/", str(m))
        lines.append(f"| {label}{', on one H200' if on_gpu else ''} | " + " | ".join(shown) + " |")
    full = list(store.under(f"{name}/full/").values())
    if full:
        accuracy, train, evaluate = (np.mean([c[k] for c in full]) for k in ("accuracy", "train_s", "evaluate_s"))
        theirs = printed["full"]
        where = ", on one H200" if full[0]["device"] == "cuda" else ""
        lines.append(
            f"\n{store.mark(f'{name}/full/', 'Full model')}, {len(full)} run{'s' * (len(full) > 1)}{where}: "
            f"{accuracy:.2f} % ({theirs[0]} %), "
            f"{said['full'][0]}; "
            f"trained in {train:.1f} s ({theirs[1]} s), evaluated in {evaluate:.3g} s ({theirs[2]} s)."
        )
        alike = {(c["device"], c["code"]) for c in [*full, *(c for cells in found.values() for c in cells["spgp"])]}
        lines += _cost(found, accuracy, train) if len(alike) == 1 else []
    return lines


def _cost(found: dict[int, dict[str, list[dict[str, Any]]]], accuracy: float, train: float) -> list[str]:
    """The thesis' argument: sparse models come close to the full one at a fraction of its training time."""
    near = [m for m, cells in found.items() if np.mean([c["accuracy"] for c in cells["spgp"]]) >= accuracy - 1]
    if not near:
        return ["No SPGP comes within a point of it."]
    spent = np.mean([c["train_s"] for c in found[near[0]]["spgp"]])
    return [f"SPGP comes within a point of it at M = {near[0]}, in {spent / train:.2g} times its training time."]


def _scales(printed: dict[str, Any], store: Store) -> list[str]:
    lines = [
        f"\n## {printed['where']}: {printed['what']}\n",
        "| | x1 | x2 | x3 | x4 | x5 | x6 | noise last |",
        "|---" * 8 + "|",
    ]
    for key, label in (("prior", "with the prior"), ("none", "without (`length_scale_prior=None`)")):
        scales = np.array([cell["length_scales"] for cell in store.under(f"scales/{key}/").values()])
        if len(scales):
            last = sum(set(np.argsort(s)[-2:]) == {4, 5} for s in scales)
            middle = " | ".join(f"{v:.3g}" for v in np.median(scales, 0))
            lines.append(f"| ours {label}, median of {len(scales)} draws | {middle} | in {last} draws |")
    own = " | ".join(map(str, printed["length_scales"]))
    lines.append(f"| printed, one draw | {own} | yes |")
    lines.append("\nLength-scales of inputs that are not needed have no best value: only their order can be compared.")
    return lines


def _alone(printed: dict[str, Any], store: Store) -> list[str]:
    cells = list(store.under("alone/").values())
    if not cells:
        return []
    lines = [
        "\n## Section 5.3.1: one input alone, full model, 200 training rows\n",
        "| input | ours | printed | verdict |",
        "|---" * 4 + "|",
    ]
    for key, theirs in printed["alone"].items():
        runs = [cell[key] for cell in cells]
        lines.append(f"| {key} | {np.mean(runs):.1f} | {theirs} | {judge(runs, theirs, n_test=200)} |")
    order = sum(cell["x2"] < min(cell["x1"], cell["x3"]) for cell in cells)
    return [*lines, f"\nx2 is the least of the three in {order} of {len(cells)} draws, as printed."]


def boundaries(store: Store) -> list[str]:
    cells = list(store.under("boundary/").values())
    if not cells:
        return []
    lines = [
        "\n## Figures 5-1 to 5-4: ten inducing inputs, the full model's kernel\n",
        "![boundaries](../../../docs/figures/thesis09_gp_boundaries.png)\n",
        f"Share of 10 000 new rows on which a model agrees with the full model or Bayes' rule, {len(cells)} draws.\n",
        "| model | as the full model, % | as Bayes' rule, % |",
        "|---|---|---|",
    ]
    label = {"full": "full"} | KINDS
    for name in label:
        as_full, as_bayes = ([cell[f"{name}_as_{other}"] for cell in cells] for other in ("full", "bayes"))
        spread = [f"{np.mean(v):.1f} ± {np.std(v, ddof=1) / len(v) ** 0.5:.1f}" for v in (as_full, as_bayes)]
        lines.append(f"| {label[name]} | {spread[0] if name != 'full' else '100'} | {spread[1]} |")
    nearer = sum(min(c["pp_as_full"], c["spgp_as_full"]) > c["sd_as_full"] for c in cells)
    return [
        *lines,
        f"\nSR/PP and SPGP both are nearer to the full model than SD in {nearer} of {len(cells)} draws; "
        "the thesis shows one, in which they are.",
    ]


def _alm(printed: dict[str, Any], store: Store) -> list[str]:
    lines = ["\n## Section 5.3.2: inputs of E. coli\n"]
    for cell in store.under("alm/").values():
        lines.append(
            f"alm1 and alm2 alone, full model: {cell['accuracy']:.2f} % (printed {printed['alm']}, which is no "
            "multiple of 1/336)."
        )
    full = {key: cell for key, cell in store.under("ecoli/full/").items() if "relevance" in cell}
    if full:
        inputs = ("mcg", "gvh", "lip", "chg", "aac", "alm1", "alm2")
        sites = ("cp", "im", "pp", "imU", "om", "omL", "imL", "imS")
        lines += ["\n| site | inputs by relevance in the full model | printed |", "|---|---|---|"]
        for site, relevance in zip(sites, next(iter(full.values()))["relevance"], strict=True):
            order = np.argsort(relevance)[::-1]
            shown = ", ".join(f"{inputs[j]} {relevance[j]:.2f}" for j in order[:4])
            lines.append(f"| {site} | {shown} | {', '.join(printed['sites'].get(site, []))} |")
        lines.append("\nThe thesis names alm1 and alm2 for all sites beside those.")
    return lines


def _words(printed: dict[str, Any], store: Store) -> list[str]:
    lines = ["\n## Section 5.3.4: thirteen words of spam, SPGP with M = 256\n"]
    for which, label in (
        ("thesis", "The thesis' thirteen"),
        ("voted", "Thirteen by votes of SD and two SPGP models of ours"),
    ):
        cells = list(store.under(f"words/{which}/").values())
        if cells:
            runs = [cell["accuracy"] for cell in cells]
            verdict = judge(runs, printed["words"], n_test=printed["n_test"])
            lines.append(f"- {label}: {np.mean(runs):.2f} % ({printed['words']}), {verdict}, {len(runs)} splits.")
    voted, theirs = store.under("words/voted/"), store.under("words/thesis/")
    if voted and theirs:
        known = set(next(iter(theirs.values()))["words"])
        shared = [len(known & set(cell["words"])) for cell in voted.values()]
        lines.append(
            f"- Of our thirteen, {', '.join(map(str, shared))} are among the thesis'. The thesis does not name the "
            "model behind its number."
        )
    return lines


def _pixels(printed: dict[str, Any], store: Store) -> list[str]:
    cells = list(store.under("pixels/").values())
    if not cells:
        return []
    lines = ["\n## Section 5.3.5 and figure 5-6: pixels chosen by relevance, SPGP with M = 512\n"]
    lines += ["| pixels | accuracy % | verdict | training s |", "|---" * 4 + "|"]
    for n, (accuracy, seconds) in printed["pixels"].items():
        runs = [cell[f"accuracy_{n}"] for cell in cells]
        spent = np.mean([cell[f"train_s_{n}"] for cell in cells])
        verdict = judge(runs, accuracy, n_test=printed["n_test"])
        lines.append(f"| {n} | {np.mean(runs):.2f} ({accuracy}) | {verdict} | {spent:.0f} ({seconds}) |")
    return [
        *lines,
        f"\n{len(cells)} splits; the relevance is that of the model of all pixels.",
        "\n![pixels](../../../docs/figures/thesis09_pixels.png)",
    ]
