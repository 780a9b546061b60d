"""Products by machine code: as near to the formula as rounding allows, whatever the shape and the threads."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import mercer.codegen
from mercer.codegen import compiled as module
from mercer.codegen.cpu import FEW_INPUTS, LEAST, LOG2E, over_rows
from mercer.data import TensorRows
from mercer.engine import KernelMatrix, make_plan
from mercer.kernels import Gaussian, Kernel, Laplacian, Linear, Matern12, Matern32, Matern52, Separable
from tests import oracles

EPS = oracles.EPS[torch.float32]
KERNELS: list[Kernel] = [
    Gaussian(1.3), Matern12(0.8), Matern32(1.5), Matern52(2.0), Laplacian(3.0), 1.7 * Gaussian() + 0.4,
    Gaussian() + Linear(), Matern52() * Laplacian(),
]  # fmt: skip
needs_llvm = pytest.mark.skipif(module.machine_code() is None, reason="LLVM is not there")
over_kernels = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


@pytest.fixture
def always(monkeypatch):
    """Machine code however little the work."""
    monkeypatch.setattr(module, "MKL", False)
    monkeypatch.setattr(module, "ENOUGH", 0)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def points(n: int, D: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, D))).float()


def matrix(kernel: Kernel, X: Tensor, Z: Tensor) -> KernelMatrix:
    return KernelMatrix(TensorRows(X), kernel, Z, make_plan(len(X), "cpu", "float32", 1 << 28))


ENTRIES: dict[tuple[str, bytes, bytes], tuple[np.ndarray, np.ndarray]] = {}


def entries(kernel: Kernel, X: Tensor, Z: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """K(X, Z) and how far rounding may leave it, made once for all tests of the same rows."""
    key = repr(kernel), X.numpy().tobytes(), Z.numpy().tobytes()
    if key not in ENTRIES:
        ENTRIES[key] = oracles.tile(kernel, X, Z), oracles.rounding(kernel, X, Z, EPS)
    return ENTRIES[key]


def assert_products_are_dense(kernel: Kernel, X: Tensor, Z: Tensor, p: int) -> None:
    """Each product bounds its own error: (terms + a few) · eps of itself with absolute values, beside that of K."""
    K, error = entries(kernel, X, Z)
    W, R, weight = points(len(Z), p, 1), points(len(X), p, 2), points(len(X), 1, 3)[:, 0].abs()
    seen, (w, r, d) = matrix(kernel, X, Z), (part.double().numpy() for part in (W, R, weight))
    terms = (2 * (len(X) + len(Z)) + 20) * EPS
    assert (np.abs(kernel(X, Z).double().numpy() - K) <= error + 4 * EPS * np.abs(K)).all()

    def near(found: Tensor, wanted: np.ndarray, size: np.ndarray, spread: np.ndarray) -> None:
        assert (np.abs(found.double().numpy() - wanted) <= spread + terms * size).all()

    A = np.abs(K)
    near(seen.product(W), K @ w, A @ np.abs(w), error @ np.abs(w))
    near(seen.transposed(R), K.T @ r, A.T @ np.abs(r), error.T @ np.abs(r))
    slope, curvature = seen.column_scores(R, weight)
    near(slope, K.T @ r, A.T @ np.abs(r), error.T @ np.abs(r))
    near(curvature, (K**2).T @ d, (A**2).T @ d, (error * (2 * A + error)).T @ d)
    near(seen.normal(W, weight), K.T @ (d[:, None] * (K @ w)), A.T @ (d[:, None] * (A @ np.abs(w))),
         (A + error).T @ (d[:, None] * ((A + error) @ np.abs(w))) - A.T @ (d[:, None] * (A @ np.abs(w))))  # fmt: skip


@needs_llvm
@over_kernels
def test_every_product_is_that_with_the_dense_matrix(kernel, always, threads):
    assert_products_are_dense(kernel, points(47, 3), points(37, 3, 4), 2)


@needs_llvm
@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 40), m=st.integers(1, 40), D=st.integers(1, 9), p=st.sampled_from([1, 3, 17]),
    kernel=st.sampled_from(KERNELS[:6]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_shape_will_do(n, m, D, p, kernel, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MKL", False)
        patch.setattr(module, "ENOUGH", 0)
        patch.setattr(module, "CACHE", 64)  # several blocks of basis vectors
        patch.setattr(module, "SUMMED", 24)  # whole groups of six rows, and of eight
        assert_products_are_dense(kernel, points(n, D, seed), points(m, D, seed + 100), p)


@needs_llvm
def test_powers_of_two_are_good_to_two_units_in_the_last_place(always):
    # The polynomial is off by 9.2e-8, 1.55 half-units; its last step rounds by one half-unit (two below one); what
    # went before counts for half as much, since |f| ≤ ½.
    x = torch.cat([torch.linspace(0, 62.5, 40_001), torch.arange(63.0)])[:, None]
    K = module.Compiled(module.ClosedForm(base_factor=LOG2E, city_block=True), torch.zeros(1, 16)).tile(x)
    wanted = torch.exp2(-x.double())
    assert ((K.double() - wanted).abs() <= 4 * 2.0**-24 * wanted).all()
    assert torch.equal(K[40_001:], torch.exp2(-x[40_001:]).expand(-1, 16))  # integers are exact


@needs_llvm
@pytest.mark.parametrize("kernel", KERNELS[:5], ids=repr)
def test_far_rows_get_zeroes_and_no_denormal_numbers(kernel, always):
    # An exponent of at most 80 is rounded by 80 · 2⁻²⁴, a value near the least one by 5e-6 of itself at most.
    X = torch.cat([torch.linspace(0, 300, 3000), torch.tensor([1e4, 1e9, 1e18])])[:, None]
    K = kernel(X, X[:20] / 100)
    assert torch.isfinite(K).all()
    assert LEAST * (1 - 1e-5) <= K[K != 0].min() < 1e3 * LEAST
    assert (K[-3:] == 0).all()


@needs_llvm
def test_what_is_no_number_stays_none(always):
    X, Z = points(20, 3), points(18, 3, 1)
    X[7, 1] = torch.nan
    K = Gaussian()(X, Z)
    assert K[7].isnan().all()
    assert K[:7].isfinite().all()
    assert Gaussian()(Z, X)[:, 7].isnan().all()
    assert module.city_block(X, Z)[7].isnan().all()


@needs_llvm
def test_a_product_depends_neither_on_threads_nor_on_the_other_rows(always):
    X, Z, W = points(1000, 5), points(70, 5, 1), points(70, 2, 2)
    before, found = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found += [matrix(Gaussian(), X, Z).product(W), matrix(Gaussian(), X[:531], Z).product(W)]
    torch.set_num_threads(before)
    assert all(torch.equal(one[:531], found[0][:531]) for one in found)


@needs_llvm
def test_gradients_and_double_precision_are_torchs(always):
    X, Z = points(20, 3), points(18, 3, 1)
    assert Gaussian().columns(Z.double()).specialise(10**9).compiled is None
    assert Gaussian().columns(Z).specialise(10**9).compiled is not None
    assert Separable(q=0.5).columns(Z).specialise(10**9).compiled is None
    at = X.clone().requires_grad_()
    for kernel in KERNELS:
        (seen,) = torch.autograd.grad(kernel(at, Z).sum(), at)
        assert torch.allclose(
            seen.double(), matrix(kernel, X, Z).slopes(torch.ones(18, 1))[:, :, 0].double(), atol=1e-4
        )


@needs_llvm
@pytest.mark.parametrize("mkl", [False, True])
def test_little_work_is_torchs_and_much_is_not(monkeypatch, mkl):
    monkeypatch.setattr(module, "MKL", mkl)
    Z, enough = points(64, 3), module.ENOUGH_FOR_MKL if mkl else module.ENOUGH
    few, many = (Gaussian().columns(Z).specialise(n) for n in (enough // 64 - 1, enough // 64))
    assert few.compiled is None
    assert many.compiled is not None
    again = pickle.loads(pickle.dumps(many))
    assert torch.equal(again(Z), many(Z))


@needs_llvm
@over_kernels
def test_beside_mkl_products_are_machine_codes_and_tiles_torchs_unless_they_sum_differences(monkeypatch, kernel):
    monkeypatch.setattr(module, "MKL", True)
    monkeypatch.setattr(module, "ENOUGH", 0)
    monkeypatch.setattr(module, "ENOUGH_FOR_MKL", 0)
    assert_products_are_dense(kernel, points(47, 3), points(37, 3, 4), 2)
    wide = points(37, module.INPUTS_FOR_MKL + 1)
    assert Gaussian().columns(wide).specialise(10**6).compiled is None
    assert Laplacian().columns(wide).specialise(10**6).compiled is not None
    for D, radial_too in ((3, True), (8, False)):
        radial, absolute = (one.columns(points(37, D)).specialise(10**6).compiled for one in (Gaussian(), Laplacian()))
        assert radial.writes_tiles == radial_too
        assert absolute.writes_tiles


@pytest.mark.parametrize("by_torch", [True, False])
@pytest.mark.parametrize("kernel", [Gaussian(0.01), Matern12(0.01), Matern32(0.01)], ids=repr)
@pytest.mark.parametrize("D", range(1, FEW_INPUTS + 1))
def test_rows_of_few_inputs_are_told_apart_however_short_the_length_scale(D, kernel, by_torch, monkeypatch):
    """Inputs in units of length-scales are rounded twice, so distances are off by 4 eps of the longest row, at
    most; no value changes faster than its distance. By norms and products its square would be, a hundred times that."""
    if not by_torch:
        if module.machine_code() is None:
            pytest.skip("LLVM is not there")
        monkeypatch.setattr(module, "ENOUGH", 0)
        monkeypatch.setattr(module, "ENOUGH_FOR_MKL", 0)
    X = points(100, D)
    Z = X[:20] + 0.01 * points(20, D, 1)
    (wanted, _), longest = entries(kernel, X, Z), 3**0.5 * float(X.norm(dim=1).max()) / 0.01
    found = matrix(kernel, X, Z).product(torch.eye(20)[:, :10])
    assert (np.abs(found.double().numpy() - wanted[:, :10]) <= (4 * 2 * longest + 20) * EPS).all()
    assert (np.abs(kernel(X, Z).double().numpy() - wanted) <= (4 * 2 * longest + 20) * EPS).all()


@over_kernels
def test_without_llvm_everything_is_torchs(kernel, always, monkeypatch):
    X, Z, W = points(47, 3), points(37, 3, 4), points(37, 2)
    with_it = matrix(kernel, X, Z).product(W)
    monkeypatch.setattr(module, "machine_code", lambda: None)
    without = matrix(kernel, X, Z)
    assert getattr(without.columns, "compiled", None) is None
    K, error = entries(kernel, X, Z)
    bound = 2 * (error + 40 * EPS * np.abs(K)) @ W.abs().numpy()
    assert ((without.product(W) - with_it).abs().double().numpy() <= bound).all()


def test_llvm_may_be_missing(monkeypatch):
    for name in ("machine_code", "vector_code"):
        monkeypatch.delitem(sys.modules, f"mercer.codegen.{name}", raising=False)
        monkeypatch.delattr(mercer.codegen, name, raising=False)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert module.machine_code.__wrapped__() is None


# --- threads ----------------------------------------------------------------------------------------


@given(n=st.integers(0, 100), multiple=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_parts_cover_all_rows_once_in_order(n, multiple):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    parts = over_rows(n, multiple, lambda where: where)
    torch.set_num_threads(before)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))
    assert all(part.stop % multiple == 0 for part in parts[:-1])


def test_an_error_in_a_thread_is_the_callers(threads):
    def work(where: slice) -> None:
        if where.stop == 24:
            raise ValueError("the last part")

    with pytest.raises(ValueError, match="the last part"):
        over_rows(24, 1, work)


def test_callers_at_once_and_a_process_forked_off_have_threads(threads):
    def count() -> int:
        return sum(over_rows(50, 1, lambda where: where.stop - where.start))

    found: list[int] = []
    callers = [threading.Thread(target=lambda: found.append(count())) for _ in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert found == [50] * 4
    if hasattr(os, "fork"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later Pythons warn of forks beside threads: that it works is the point
            child = os.fork()
        if child == 0:
            os._exit(0 if count() == 50 else 1)
        assert os.waitpid(child, 0)[1] == 0
