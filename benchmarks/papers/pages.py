"""docs/reproduce, from the store: every printed number beside ours, every claim, and one line for each table.

Nothing measured is typed by hand: `paper.toml` of a folder has the printed numbers, the choices where a paper is
silent, reasons of differences by table, and what is not to be had; its `paper.py` says which cells stand beside which
number.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from papers.measure import CHECKED, HERE, OLD, Store
from papers.rows import Claim, Row, mark

PAPERS = ("boost06", "boost10", "greedy02", "thesis09_mixtures", "thesis09_gp", "mekl13")
WORDS = ("reproduced", "better", "worse", "more", "fewer", "no spread", "so here", "differs", "not measured")


def about(paper: str) -> dict[str, Any]:
    return tomllib.loads((HERE / paper / "paper.toml").read_text(encoding="utf-8"))["page"]


def lines_of(paper: str, store: Store) -> list[Row | Claim]:
    return list(import_module(f"papers.{paper}.paper").rows(store))


def write(store: Store, folder: Path) -> None:
    """All pages into a folder; of a store of few cells, what those say."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {paper: lines_of(paper, store) for paper in PAPERS}
    for paper, lines in found.items():
        (folder / f"{paper}.md").write_text("\n".join(page(paper, store, lines)) + "\n", encoding="utf-8")
    (folder / "summary.md").write_text("\n".join(summary(store, found)) + "\n", encoding="utf-8")
    (folder / "calls.md").write_text("\n".join(calls()) + "\n", encoding="utf-8")


def summary(store: Store, found: dict[str, list[Row | Claim]]) -> Iterator[str]:
    """One line for each table and figure of all papers."""
    for paper, lines in found.items():
        told = about(paper)
        yield from (f"## {told['title']}", "", f"Every number: [{paper}](reproduce/{paper}.md).", "")
        yield from table(["what", "outcome"], [[where, tally(store, own)] for where, own in grouped(lines).items()])
        yield from (f"| {where} | {reason} |" for where, _, reason in told["missing"])
        yield ""


def grouped(lines: Sequence[Row | Claim]) -> dict[str, list[Row | Claim]]:
    found: dict[str, list[Row | Claim]] = {}
    for line in lines:
        found.setdefault(line.where, []).append(line)
    return found


def tally(store: Store, lines: Sequence[Row | Claim]) -> str:
    """How often each verdict was given: to numbers, and to claims."""
    parts = []
    for kind, name in ((Row, ""), (Claim, "claims: ")):
        counts = Counter(line.word for line in lines if isinstance(line, kind))
        parts.append(name + ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word]))
    marks = {mark(store, line) for line in lines}
    worst = OLD if OLD in marks else CHECKED if CHECKED in marks else ""
    return marked("; ".join(part for part in parts if not part.endswith(": ") and part), worst)


def marked(text: str, sign: str) -> str:
    return f"{text} {sign}" if sign else text


def page(paper: str, store: Store, lines: list[Row | Claim]) -> Iterator[str]:
    told = about(paper)
    yield from (f"# {told['title']}", "", told["cite"], "")
    yield from (f"- {sentence}" for sentence in told["readings"])
    marks = Counter(store.mark(f"{paper}/{name}") for name in store.under(f"{paper}/"))
    counts = f"{marks[OLD]} are of earlier code ({OLD}), {marks[CHECKED]} of earlier code that was checked ({CHECKED})"
    yield from ("", f"{marks.total()} cells are kept; {counts}.", "")
    for where, own in grouped(lines).items():
        yield from (f"## {where}", "")
        numbers = [line for line in own if isinstance(line, Row)]
        if numbers:
            head = ["what", "printed", "ours, printed protocol", "splits", "s.e.", "verdict", "ours, today"]
            yield from table(head, [number(store, row) for row in numbers])
            yield ""
        claims = [line for line in own if isinstance(line, Claim)]
        if claims:
            rows = [[marked(c.what, mark(store, c)), c.word, c.outcome] for c in claims]
            yield from table(["claim", "verdict", "ours"], rows)
            yield ""
        if where in told.get("why", {}):
            yield from (told["why"][where], "")
    if told["missing"]:
        yield from ("## Not to be had", "")
        yield from table(["where", "what", "why"], told["missing"])
        yield ""
    yield from (f"![{name}](../figures/{name}.png)" for name in told.get("figures", []))


def number(store: Store, row: Row) -> list[str]:
    """A printed number, ours, the difference in standard errors (positive where ours is better, or more), a verdict."""
    printed = short(row.printed) + (f" ± {short(row.spread)}" if row.spread is not None else "")
    verdict, name = row.verdict, marked(row.what, mark(store, row))
    if verdict is None:
        return [name, printed, "–", "0", "–", row.word, spread(row.today)]
    z = f"{verdict.difference:+.1f}" if np.isfinite(verdict.difference) else "–"
    return [name, printed, spread(row.ours), str(len(row.ours)), z, row.word, spread(row.today)]


def spread(values: Sequence[float]) -> str:
    if not len(values):
        return "–"
    end = f" ± {short(float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return short(float(np.mean(values))) + end


def short(value: float) -> str:
    return f"{value:.4g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def calls() -> Iterator[str]:
    """Every method and option of the papers with the call that reaches it (`calls.toml`)."""
    found = tomllib.loads((HERE / "calls.toml").read_text(encoding="utf-8"))
    yield from ("## Methods and options of the papers, by call", "", found["text"].strip(), "")
    for paper, entries in found["calls"].items():
        yield from (f"### {paper}", "")
        yield from table(["the paper has", "call"], [[item, f"`{call}`"] for item, call in entries])
        yield ""
