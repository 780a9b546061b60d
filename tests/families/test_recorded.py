"""Recorded evidences are those evaluated launch by launch; needs a GPU."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from oracles import assert_close

from mercer import SparseGPRegressor
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.plan import Sample
from mercer.evidence import cuda_graph
from mercer.evidence.approximations import ProjectedProcess, PseudoInputs, Variational
from mercer.evidence.cuda_graph import RegressionEvidence
from mercer.evidence.sparse import sparse_evidence
from mercer.kernels import Gaussian, Matern52, Polynomial, RationalQuadratic, as_kernel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

KERNELS = [
    Gaussian([0.7, 1.3, 2.0]) * 2.0 + 0.5,
    Matern52(1.5),
    RationalQuadratic(1.2, alpha=0.8),
    Polynomial(degree=2) + Gaussian(1.0),
    as_kernel(
        lambda X, Z: torch.exp(-torch.cdist(X, Z) / float(X.detach().square().mean().sqrt()))
    ),  # cannot be recorded
]


def rows(seed: int, n: int = 3000) -> Sample:
    draw = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 3, generator=draw)
    Y = (X[:, :1] * X[:, 1:2]).sin() + 0.1 * torch.randn(n, 1, generator=draw)
    weight = torch.rand(n, generator=draw, dtype=torch.float64) + 0.5
    return Sample(TensorRows(X.cuda()), Y.double().cuda(), weight.cuda(), make_plan(n, "cuda"))


def close(a, b):
    assert a.value == pytest.approx(b.value, rel=1e-5)
    assert a.by_noise == pytest.approx(b.by_noise, rel=1e-2, abs=1e-4 * abs(b.value))
    for name, value in b.by_parameter.items():
        assert_close(a.by_parameter[name], value, rtol=1e-2, atol=1e-2 * float(value.abs().max()))
    assert_close(a.by_basis, b.by_basis, rtol=1e-2, atol=1e-2 * float(b.by_basis.abs().max()))


@pytest.mark.parametrize("approximation", [ProjectedProcess(), PseudoInputs(), Variational()], ids=repr)
@pytest.mark.parametrize("kernel", KERNELS, ids=range(len(KERNELS)))
def test_replayed_evidences_are_those_of_their_own_rows_and_parameters(kernel, approximation, monkeypatch):
    of, parts, by_hand = RegressionEvidence(approximation), [rows(0), rows(1)], []
    monkeypatch.setattr(cuda_graph, "sparse_evidence", lambda *a, **k: by_hand.append(1) or sparse_evidence(*a, **k))
    for step in range(6):
        data, noise = parts[step % 2], 0.1 + 0.05 * step
        Z = parts[0].rows.take(np.arange(40)) + 0.1 * step
        values = {k: (np.asarray(v) * 1.1).tolist() for k, v in kernel.tunable().items()}
        kernel = kernel.replaced(values)
        plain = sparse_evidence(kernel, noise, Z, data, approximation)
        close(of(data)(kernel, noise, Z), plain)
    assert len(by_hand) == (1 if kernel.tunable() else 6)


def test_where_a_replayed_factor_fails_the_evidence_is_that_of_more_jitter():
    of, data = RegressionEvidence(Variational()), rows(0)
    good, kernel = data.rows.take(np.arange(40)), Gaussian(1.0) * 1.0
    for _ in range(3):
        of(data)(kernel, 0.1, good)
    same, wide = good[:1].repeat(40, 1), Gaussian(1e6) * 1.0
    plain = sparse_evidence(wide, 0.1, same, data, Variational())
    assert of(data)(wide, 0.1, same).value == pytest.approx(plain.value, rel=1e-5)
    with pytest.raises(ValueError, match="NaN"):
        of(data)(kernel, 0.1, good * torch.nan)
    again = sparse_evidence(kernel, 0.1, good, data, Variational())
    assert of(data)(kernel, 0.1, good).value == pytest.approx(again.value, rel=1e-5)


def test_threads_fit_beside_each_other():
    X = np.random.default_rng(0).normal(size=(3000, 3))
    y = np.sin(X[:, 0]) * X[:, 1]

    def fitted(seed):
        return SparseGPRegressor(30, kernel="gaussian", max_iter=30, random_state=seed, device="cuda").fit(X, y)

    alone = [fitted(seed).score(X, y) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        together = [model.score(X, y) for model in pool.map(fitted, range(6))]
    np.testing.assert_allclose(together, alone, atol=0.02)


def test_other_numbers_of_rows_or_inducing_inputs_are_recorded_anew():
    of, kernel = RegressionEvidence(Variational()), Gaussian(1.0) * 1.0
    for n, m in [(3000, 40), (3000, 40), (2000, 40), (3000, 20), (2000, 40), (3000, 20), (3000, 40)]:
        data = rows(0, n)
        Z = data.rows.take(np.arange(m))
        plain = sparse_evidence(kernel, 0.1, Z, data, Variational())
        close(of(data)(kernel, 0.1, Z), plain)
