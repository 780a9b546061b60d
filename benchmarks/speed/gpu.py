"""Fused products on one GPU: errors against float64, then kernel values a second beside unfused torch.

PYTHONPATH=src python3 benchmarks/speed/gpu.py [--seconds 170]

The headline rows come first; block shapes and the errors of every family share the seconds that are left. The
choices the library makes stand in `mercer.engine.fused.choose_blocks`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.engine.fused import Blocks, FusedColumns, bind, choose_blocks
from mercer.engine.packing import pack
from mercer.kernels import (
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Polynomial,
    RationalQuadratic,
)
from mercer.linalg import upper_product

N, M = 400_000, 32_768
GOALS = {8: 2.5, 21: 1.5, 54: 1.0}
BLOCKS = [
    Blocks(128, 64, 4, 3), Blocks(128, 64, 4, 2), Blocks(128, 128, 8, 2), Blocks(128, 128, 4, 2), Blocks(64, 128, 4, 2),
    Blocks(256, 64, 8, 2), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 1), Blocks(128, 64, 8, 2), Blocks(64, 128, 4, 1),
    Blocks(128, 64, 4, 1), Blocks(128, 128, 8, 1), Blocks(128, 128, 4, 1), Blocks(64, 256, 4, 1), Blocks(256, 64, 8, 1),
]  # fmt: skip
WIDE_BLOCKS = [Blocks(128, 64, 4, 3), Blocks(128, 64, 8, 2), Blocks(64, 64, 4, 2), Blocks(128, 128, 8, 2)]
FAMILIES: dict[str, Callable[[int], Kernel]] = {
    "gaussian": lambda D: Gaussian(),
    "narrow gaussian": lambda D: Gaussian(0.3),
    "matern12": lambda D: Matern12(),
    "matern32": lambda D: Matern32(),
    "matern52": lambda D: Matern52(),
    "rational-quadratic": lambda D: RationalQuadratic(alpha=1.7),
    "laplacian": lambda D: Laplacian(D),
    "linear": lambda D: Linear(),
    "polynomial": lambda D: Polynomial(3, 1.0, 0.5),
    "2.5 matern52 + 0.3": lambda D: 2.5 * Matern52() + 0.3,
}
DEVICE = torch.device("cuda")
summary: list[str] = []


def say(text: str, last: bool = False) -> None:
    print(text, flush=True)
    if last:
        summary.append(text)


def inputs(n: int, D: int, seed: int) -> Tensor:
    """Rows of mean squared length one, so that a length scale of one is a sensible kernel at any D."""
    return torch.randn(n, D, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed)) / D**0.5


def seconds(run: Callable[[], object], repeats: int = 7) -> float:
    """The median of several runs by the device's clock, after two that warm up."""
    for _ in range(2):
        run()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in marks:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in marks) / 1e3


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


def bound(kernel: Kernel, Z: Tensor) -> FusedColumns:
    columns = bind(kernel, Z)
    assert columns is not None, f"{kernel!r} has no fused form"
    return columns


@triton.jit
def exponentials(out, REPEATS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    y = at.to(tl.float32) * 1e-9
    for _ in range(REPEATS):
        y = tl.exp2(-y)
        y = tl.exp2(-y)
        y = tl.exp2(-y)
        y = tl.exp2(-y)
    tl.store(out + at, y)


def exponential_limit() -> float:
    programs, size, repeats = 132 * 64, 2048, 256
    out = torch.empty(programs * size, device=DEVICE)
    took = seconds(lambda: exponentials[(programs,)](out, repeats, size, num_warps=4))
    return programs * size * repeats * 4 / took / 1e12


def unfused(kernel: Kernel, X: Tensor, Z: Tensor, v: Tensor, rows: int = 4096) -> Tensor:
    columns = kernel.columns(Z)
    return torch.cat([columns(X[begin : begin + rows]) @ v for begin in range(0, X.shape[0], rows)])


def headline(limit: float) -> None:
    say(f"\nGaussian, N = {N}, m = {M}, p = 1; tera kernel values a second, packing included", True)
    say("  D  goal  K·v   of exp2  error    Kᵀ·r  of K·v  error    torch  ×torch  pack ms", True)
    for D, goal in GOALS.items():
        X, Z, v, r = inputs(N, D, 0), inputs(M, D, 1), inputs(M, 1, 2), inputs(N, 1, 3)
        kernel = Gaussian()
        columns = bound(kernel, Z)
        some, few = torch.randperm(N, device=DEVICE)[:1024], torch.randperm(M, device=DEVICE)[:128]
        wanted = kernel(X[some].double(), Z.double()) @ v.double()
        down = kernel(X.double(), Z[few].double()).T @ r.double()
        errors = (
            error(columns.product(X, v)[some], wanted),
            error(columns.transposed(X, r)[few], down),
        )
        runs: list[Callable[[], object]] = [
            lambda c=columns, X=X, v=v: c.product(X, v),  # type: ignore[misc]
            lambda c=columns, X=X, r=r: c.transposed(X, r),  # type: ignore[misc]
        ]
        product, transposed = (N * M / seconds(run) / 1e12 for run in runs)
        torch_rate = N * M / seconds(lambda k=kernel, X=X, Z=Z, v=v: unfused(k, X, Z, v), 3) / 1e12  # type: ignore[misc]
        packing = 1e3 * seconds(lambda c=columns, X=X, Z=Z: pack(c.form, X, Z))  # type: ignore[misc]
        say(
            f"{D:3d}  {goal:4.1f}  {product:5.2f}  {product / limit:6.0%}  {errors[0]:.1e}"
            f"  {transposed:5.2f}  {transposed / product:6.0%}  {errors[1]:.1e}  {torch_rate:5.3f}"
            f"  {product / torch_rate:6.1f}  {packing:6.3f}",
            True,
        )


def correctness(deadline: float) -> None:
    """Fresh inputs, ragged sizes; the worst error of product, transposed, scores and tile."""
    n, m = 5001, 3003
    say("\nrelative errors against float64, n = 5001, m = 3003")
    worst: dict[str, float] = {}
    grid = [(name, 8, p) for name in FAMILIES for p in (1, 5)]
    grid += [("gaussian", D, p) for D in (1, 3, 21, 54, 130) for p in (1, 2, 64)]
    grid += [(name, 130, 1) for name in ("matern52", "polynomial")] + [("polynomial", 8, 64)]
    for name, D, p in grid:
        if time.monotonic() > deadline:
            say("  the time is up; the rest was left out", True)
            break
        X, Z, V, R = inputs(n, D, 4), inputs(m, D, 5), inputs(m, p, 6), inputs(n, p, 7)
        kernel, d = FAMILIES[name](D), inputs(n, 1, 8)[:, 0].square()
        columns, K = bound(kernel, Z), kernel(X.double(), Z.double())
        positive = V.abs()  # sums of one sign show a bias of the matrix units that random signs would hide
        errors = [
            error(columns.product(X, V), K @ V.double()),
            error(columns.product(X, positive), K @ positive.double()),
            error(columns.transposed(X, R), K.T @ R.double()),
        ]
        if p == 1:
            slope, curvature = columns.column_scores(X, R, d)
            errors += [error(slope, K.T @ R.double()), error(curvature, K.square().T @ d.double())]
            errors += [error(columns(X), K)]
        worst[name] = max(worst.get(name, 0.0), *errors)
        say(f"  {name:20s} D = {D:3d}  p = {p:2d}  " + "  ".join(f"{e:.1e}" for e in errors))
    say("worst errors: " + ", ".join(f"{name} {e:.1e}" for name, e in worst.items()), True)


def gram(n: int = 1_000_000, m: int = 2048, D: int = 8) -> None:
    X, Z, t = inputs(n, D, 9), inputs(m, D, 10), inputs(n, 1, 11)
    plan = Plan(DEVICE, torch.float32, 60 << 30)
    matrix = KernelMatrix(TensorRows(X), Gaussian(), Z, plan)
    rows = plan.panel_rows(m)
    panel = matrix.columns(X[:rows])
    share = n / panel.shape[0]
    alone = share * seconds(lambda: panel.T @ panel, 3)
    upper = share * seconds(lambda: upper_product(panel, panel), 3)
    tile = share * seconds(lambda: matrix.columns(X[:rows]), 3)
    moments = seconds(lambda: matrix.moments(t), 3)
    few = 100_000
    K = Gaussian()(X[:few].double(), Z.double())
    wanted = K.T @ K
    plain = KernelMatrix(TensorRows(X[:few]), Gaussian(), Z, plan).moments(t[:few])[0]
    say(f"\nKᵀK, N = {n}, m = {m}, D = {D}, float32, {panel.shape[0]} rows a panel", True)
    say(
        f"  product alone {1e3 * alone:.0f} ms, its upper blocks {1e3 * upper:.0f} ms, tiles {1e3 * tile:.1f} ms, "
        f"moments {1e3 * moments:.0f} ms: {alone / moments:.0%} of the product, {upper / moments:.0%} of the blocks, "
        f"error {error(plain, wanted):.1e}",
        True,
    )
    for size in (4096, 16384):
        took = seconds(lambda size=size: split_gram(matrix.columns, X, m, size), 3)  # type: ignore[misc]
        off = error(split_gram(matrix.columns, X[:few], m, size), wanted)
        say(f"  as two float16 products, {size} rows a panel: {1e3 * took:.0f} ms, error {off:.1e}", True)


def split_gram(columns: Callable[[Tensor], Tensor], X: Tensor, m: int, rows: int) -> Tensor:
    """KᵀK from K = H + L in float16: HᵀH + HᵀL + (HᵀL)ᵀ, each panel summed in float32, panels in float64."""
    square, mixed = (torch.zeros(m, m, device=DEVICE, dtype=torch.float64) for _ in range(2))
    for begin in range(0, X.shape[0], rows):
        K = columns(X[begin : begin + rows]) * 2.0**14
        high = K.half()
        low = (K - high).half()
        square += torch.mm(high.T, high, out_dtype=torch.float32)
        mixed += torch.mm(high.T, low, out_dtype=torch.float32)
    return (square + mixed + mixed.T) * 2.0**-28


def compare_blocks(deadline: float) -> None:
    """Every block shape; the winner of each row belongs into `choose_blocks`."""
    say("\nblock shapes (rows×columns, warps, stages): tera kernel values a second; * is the library's choice")
    cases = [(D, 1, BLOCKS) for D in sorted(GOALS, reverse=True)] + [(8, p, WIDE_BLOCKS) for p in (16, 64)]
    for D, p, table in cases:
        X, Z, V = inputs(N, D, 0), inputs(M, D, 1), inputs(M, p, 2)
        columns, found = bound(Gaussian(), Z), []
        chosen = choose_blocks(columns.width, p)
        for blocks in table:
            if time.monotonic() > deadline:
                say("  the time is up; the rest was left out")
                break
            variant = replace(columns, blocks=blocks)
            label = f"{blocks.rows}x{blocks.columns},{blocks.warps},{blocks.stages}"
            try:
                rate = N * M / seconds(lambda c=variant, X=X, V=V: c.product(X, V), 3) / 1e12  # type: ignore[misc]
            except Exception as problem:  # a shape that does not fit the chip is an answer too
                say(f"  D = {D:2d}  p = {p:2d}  {label:28s} failed: {str(problem).splitlines()[0][:80]}")
                continue
            found.append((rate, label))
            mark = "*" if blocks == chosen else " "
            say(f"  D = {D:2d}  p = {p:2d}  {label:28s} {rate:.2f} {mark}")
        best = "; ".join(f"{label} {rate:.2f}" for rate, label in sorted(found, reverse=True)[:4])
        summary.append(f"best blocks, D = {D}, p = {p}: {best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=170.0)
    began, deadline = time.monotonic(), time.monotonic() + parser.parse_args().seconds
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", True)
    limit = exponential_limit()
    say(f"exp2 alone: {limit:.2f} tera values a second", True)
    steps = lambda: headline(limit), gram, lambda: compare_blocks(deadline - 60), lambda: correctness(deadline)
    for step in steps:
        try:
            step()
        except Exception as problem:  # one failed step must not hide the others
            say(f"  step failed: {type(problem).__name__}: {str(problem)[:600]}", True)
        say(f"  [{time.monotonic() - began:.0f} s]")
    print("\n" + "=" * 100 + "\n" + "\n".join(summary))


if __name__ == "__main__":
    main()
