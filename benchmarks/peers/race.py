"""The race judged: its members fitted exactly on all training rows, averaged, beside boosted trees as they come.

    MERCER_DATA=… python benchmarks/peers/race.py [--part choose|once] [--tables …] [--splits 1] [--out f.json]

Errors are the normalised squared error or the share of wrong classes, both in percent; classes have a log loss too.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from race_tables import Table, table

from mercer.tuning.constants import CHOSEN_BY, LOOKED_AT_ONCE
from mercer.tuning.link import Link, codes_of
from mercer.tuning.metric import moved
from mercer.tuning.race import Race, race


@dataclass
class Codes:
    """Targets as the race wants them, and what its values say about them."""

    y: np.ndarray
    classes: bool

    def __post_init__(self) -> None:
        if not self.classes:
            raw = self.y[:, None].astype(float)
        elif self.y.max() == 1:
            raw = 2.0 * self.y[:, None] - 1
        else:
            raw = np.eye(self.y.max() + 1)[self.y]
        self.mean = raw.mean(0)
        self.scale = 1.0 if self.classes else raw.std() or 1.0
        self.coded = torch.from_numpy((raw - self.mean) / self.scale)

    def errors(self, F: torch.Tensor, y: np.ndarray, link: Link | None) -> list[float]:
        f = F.cpu().double()
        if not self.classes:
            return [100 * float(np.mean((f[:, 0].numpy() * self.scale + self.mean[0] - y) ** 2) / np.var(self.y))]
        p = (link or Link(codes_of(self.coded), 0.01, 1.0)).probabilities(f).numpy()
        known = np.where(y < p.shape[1], y, 0)
        own = np.where(y < p.shape[1], p[np.arange(len(y)), known], 0).clip(1e-9)
        return [100 * float(np.mean(p.argmax(1) != y)), float(-np.log(own).mean())]


def fitted(found: Race, X: torch.Tensor, Y: torch.Tensor, X_test: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values of the averaged members at test rows, each member exact kernel ridge on all rows."""
    total = torch.zeros(len(X_test), Y.shape[1], dtype=dtype, device=X.device)
    for member in found.members:
        A, B = (moved(member.columns(rows), member.transform.to(rows)).to(dtype) for rows in (X, X_test))
        K = member.kernel(A, A)
        K.diagonal().add_(member.penalty)
        factor, info = torch.linalg.cholesky_ex(K)
        while int(info):
            K.diagonal().add_(1e-6)
            factor, info = torch.linalg.cholesky_ex(K)
        total += member.share * (member.kernel(B, A) @ torch.cholesky_solve(Y.to(dtype), factor))
    return total


def judged(t: Table, seed: int, device: str, dtype: torch.dtype) -> dict:
    codes = Codes(t.y, t.classes)
    X, X_test = (torch.from_numpy(np.asarray(rows, dtype=float)) for rows in (t.X, t.X_test))
    kept = torch.from_numpy(t.kept)
    began, cpu = time.perf_counter(), time.process_time()
    found = race(X, codes.coded, torch.ones(len(X)), classes=t.classes, rng=np.random.default_rng(seed), kept=kept,
                 device=device)  # fmt: skip
    raced = time.perf_counter() - began
    cpu = time.process_time() - cpu
    F = fitted(found, X.to(device), codes.coded.to(device), X_test.to(device), dtype)
    return {
        "errors": codes.errors(F, t.y_test, found.link),
        "race_seconds": raced,
        "race_cpu_seconds": cpu,
        "seconds": time.perf_counter() - began,
        "loss": found.loss,
        "members": [(m.name, round(m.share, 2), float(f"{m.penalty:.2g}"), round(m.loss, 4)) for m in found.members],
        "report": found.report,
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--part", choices=["choose", "once"], default="choose")
    options.add_argument("--tables", nargs="+", default=None)
    options.add_argument("--splits", type=int, default=1)
    options.add_argument("--rows", type=int, default=12_000)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--out", type=Path, default=None)
    given = options.parse_args()
    part = CHOSEN_BY if given.part == "choose" else LOOKED_AT_ONCE
    dtype = torch.float64 if given.device == "cuda" else torch.float32
    results = {}
    for name in given.tables or [*part["regression"], *part["classification"]]:
        for seed in range(given.splits):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one = results[f"{name}/{seed}"] = judged(table(name, seed, given.rows), seed, given.device, dtype)
            errors = "  ".join(f"{e:.4g}" for e in one["errors"])
            spent = f"race {one['race_seconds']:.1f} s (CPU {one['race_cpu_seconds']:.1f})"
            print(f"{name:22s} {seed} {errors:16s} {spent}  {one['members']}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
