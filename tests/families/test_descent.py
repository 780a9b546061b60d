"""Descents on left-out rows: their slopes against autograd, their ends against tables whose inputs are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mercer.kernels import Gaussian, Laplacian, Matern12, Matern32
from mercer.selection.descent import FOLDS, PRIOR, Descent
from mercer.selection.halving import select
from mercer.selection.view import apply_transform, distances, tile

TURN = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, -0.3], [0.2, 0.0, 0.7]], dtype=torch.float64)
RADIAL = (Gaussian(1.3), Matern32(2.0), Matern12(2.0))
KINDS = [(Laplacian(3.0), TURN.diagonal()), *((k, T) for k in RADIAL for T in (TURN, TURN.diagonal()))]


def rows(n: int, D: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, D)))


@pytest.mark.parametrize(("kernel", "transform"), KINDS, ids=lambda part: str(getattr(part, "ndim", repr(part))))
def test_the_slope_of_a_descent_is_that_of_really_leaving_folds_out(kernel, transform):
    X, Y, group = rows(60, 3), rows(60, 2, seed=1), torch.tensor([0, 1, 1])
    weight = torch.from_numpy(np.random.default_rng(2).uniform(0.5, 2, 60))
    theta = torch.tensor([0.2, -0.1, 0.5], dtype=torch.float64, requires_grad=True)
    A = apply_transform(X * theta[:-1].exp()[group], transform)
    lam, errors = 0.1 * theta[-1].exp(), []
    for fold in torch.arange(60).tensor_split(FOLDS):
        rest = torch.ones(60, dtype=torch.bool).index_fill(0, fold, False)
        G = kernel(A[rest], A[rest]) + torch.diag(lam / weight[rest])
        left = kernel(A[fold], A[rest]) @ torch.linalg.solve(G, Y[rest]) - Y[fold]
        errors.append((weight[fold, None] * left.square()).sum())
    slow = (sum(errors) / (weight[:, None] * Y.square()).sum()).log() + PRIOR * theta.square().sum()
    slow.backward()
    length = float(kernel.length_scale)
    value, slope = Descent(kernel, length, 0.1, X, Y, weight, transform, group)(theta.detach().numpy())
    # single precision, 6e-8, and systems of condition 60/0.1: a few parts in 1e5
    assert value == pytest.approx(slow.item(), rel=1e-4)
    np.testing.assert_allclose(slope, theta.grad, rtol=1e-3, atol=1e-3)


def test_a_descent_finds_the_inputs_that_matter_and_predicts_other_rows_better():
    X, ones = rows(500, 5), torch.ones(250, dtype=torch.float64)
    y = (3 * X[:, :1]).sin() + 0.3 * X[:, 1:2].abs() + 0.1 * rows(500, 1, seed=1)
    y = y - y.mean()

    def error(T: torch.Tensor, lam: float) -> float:
        A = apply_transform(X, T)
        K = tile(Laplacian(), distances(Laplacian(), A, A[:250]).double(), 4.0)
        alpha = torch.linalg.solve(K[:250] + lam * torch.eye(250), y[:250])
        return float((K[250:] @ alpha - y[250:]).square().mean())

    start = torch.ones(5, dtype=torch.float64)
    descent = Descent(Laplacian(), 4.0, 0.01, X[:250], y[:250], ones, start)
    found, lam = descent.minimise()
    assert found[0] > found[1] > 2 * found[2:].max()
    assert error(found, lam) < 0.5 * error(start, 0.01)
    assert error(found, lam) < error(descent.minimise(lambda: True)[0], 0.01)  # which ended after one step
    noise = torch.randn(250, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert replace(descent, Y=noise, lam=1e4).minimise() is None  # nothing is better than the mean


def test_a_descent_is_not_worthwhile_if_its_factors_may_gain_by_chance():
    """Akaike's 2k/n, for factors and the penalty, is a fifth at most; each output of a row is one of n numbers."""
    ones = torch.ones(100, dtype=torch.float64)

    def worth(D: int, p: int, groups: torch.Tensor | None = None) -> bool:
        X = rows(100, D)
        return Descent(Laplacian(), 4.0, 0.01, X, rows(100, p), ones, torch.ones(D).double(), groups).worthwhile

    assert [worth(9, 1), worth(10, 1), worth(19, 2), worth(20, 2)] == [True, False, True, False]
    assert worth(40, 1, torch.arange(40) // 5)  # what shares a factor counts once


@pytest.mark.parametrize("classes", [False, True])
def test_descents_run_in_the_last_stage_and_held_out_rows_score_them(small, classes):
    X = rows(900, 6)
    y = (3 * X[:, :1]).sin() + X[:, 1:2].abs() + 0.3 * rows(900, 1, seed=1)
    y = (y > y.mean()).double() if classes else y
    # without other metrics two of six inputs alone matter, so a descent gains far more than the 2 % it must
    alone = replace(small, evidence=False, gradient_steps=0)
    found = select(X, y - y.mean(), torch.ones(900), classes=classes, rng=np.random.default_rng(0), settings=alone)
    losses = {line["candidate"]: line["loss"] for line in found.report}
    ends = [name for name in losses if "descent" in name]
    assert 1 <= len(ends) <= 2  # of each kind of distance that is not far behind, its best
    assert found.loss <= min(losses[name] for name in ends)
