"""What every kernel promises, run over a table of all of them and of their compositions."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_close
from sklearn.base import clone
from sklearn.gaussian_process import kernels as skgp
from sklearn.metrics import pairwise
from sklearn.model_selection import GridSearchCV

import mercer
from mercer import kernels
from mercer.kernels import (
    Bias,
    Function,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Normalized,
    Polynomial,
    Precomputed,
    Product,
    Radial,
    RationalQuadratic,
    Scaled,
    Separable,
    Stationary,
    Sum,
    as_kernel,
)
from mercer.parts import Component, component

EPS = oracles.EPS
D = 3
ARD = [0.7, 1.3, 2.9]


def cosines(X, Z):
    """A positive definite function that no class of the package knows."""
    return torch.cos(X[:, None, :] - Z[None, :, :]).prod(-1)


RADIAL = [
    family(length_scale=scale)
    for family in (Gaussian, Matern12, Matern32, Matern52, RationalQuadratic)
    for scale in (1.3, ARD)
]
SEPARABLE = [
    *(Laplacian(length_scale=scale) for scale in (1.3, ARD)),
    *(Separable(ARD, p=p, q=q) for p, q in [(1.0, 1.0), (1.0, 0.6), (1.5, 1.2), (0.7, 0.7), (1.75, 1.75), (2.0, 2.0)]),
]
DOT = [Linear(), Polynomial(), Polynomial(degree=2, gamma=0.3, offset=0.7)]
COMPOSED = [
    Bias(0.4),
    Scaled(Gaussian(ARD), 2.5),
    Sum(Matern52(0.9), Linear()),
    Product(Gaussian(1.1), Polynomial(degree=2, gamma=0.5, offset=1.2)),
    Normalized(Linear()),
    Normalized(Polynomial(degree=2, gamma=0.3, offset=0.7)),
    2.0 * Matern32(ARD) + 0.5,
    Sum(Scaled(RationalQuadratic(0.8, alpha=0.6), 3.0), Product(Bias(0.2), Matern12(2.0))),
    2.0 * Laplacian(ARD) + 0.5,
    Product(Laplacian(0.8), Linear()),
    Sum(Laplacian(0.8), Matern52(1.1)),
]
CALLED = [Function(cosines)]
KERNELS = [*RADIAL, *SEPARABLE, *DOT, *COMPOSED, *CALLED]
SMOOTH = [
    kernel for kernel in KERNELS if not any(name in repr(kernel) for name in ("Laplacian", "Matern12", "Separable"))
]

SKLEARN = [
    (Gaussian(1.3), skgp.RBF(1.3)),
    (Gaussian(ARD), skgp.RBF(ARD)),
    (Gaussian(1.3), lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=0.5 / 1.3**2)),
    (Matern12(1.3), skgp.Matern(1.3, nu=0.5)),
    (Matern12(ARD), skgp.Matern(ARD, nu=0.5)),
    (Matern32(1.3), skgp.Matern(1.3, nu=1.5)),
    (Matern32(ARD), skgp.Matern(ARD, nu=1.5)),
    (Matern52(1.3), skgp.Matern(1.3, nu=2.5)),
    (Matern52(ARD), skgp.Matern(ARD, nu=2.5)),
    (Laplacian(1.3), lambda X, Z: pairwise.laplacian_kernel(X, Z, gamma=1 / 1.3)),
    (Laplacian(ARD), lambda X, Z: pairwise.laplacian_kernel(X / ARD, Z / ARD, gamma=1.0)),
    (Separable(1.3, p=2.0, q=1.0), skgp.Matern(1.3, nu=0.5)),
    (Separable(1.3 * 2**0.5, p=2.0, q=2.0), skgp.RBF(1.3)),
    (RationalQuadratic(1.3, alpha=0.6), skgp.RationalQuadratic(1.3, alpha=0.6)),
    (Linear(), pairwise.linear_kernel),
    (Linear() + 0.49, skgp.DotProduct(sigma_0=0.7)),
    (Polynomial(2, 0.3, 0.7), lambda X, Z: pairwise.polynomial_kernel(X, Z, degree=2, gamma=0.3, coef0=0.7)),
    (Normalized(Linear()), pairwise.cosine_similarity),
    (2.5 * Gaussian(ARD) + 0.4, 2.5 * skgp.RBF(ARD) + skgp.ConstantKernel(0.4)),
    (Gaussian(1.3) * Linear(), skgp.RBF(1.3) * skgp.DotProduct(sigma_0=0.0)),
    (Function(pairwise.laplacian_kernel), pairwise.laplacian_kernel),
]


@component
class Steeper(Radial):
    """A kernel as a user writes it: its profile, overwriting what it is given."""

    length_scale: float = 1.0

    def profile(self, t):
        return t.mul_(2).exp_()


few = settings(max_examples=30, deadline=None, derandomize=True)


def name(part: object) -> str:
    """A test's name that is the same in every process: no addresses, no line breaks."""
    return " ".join(repr(part).partition(" at 0x")[0].split())


over_kernels = pytest.mark.parametrize("kernel", KERNELS, ids=name)
over_smooth = pytest.mark.parametrize("kernel", SMOOTH, ids=name)
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def points(n: int, seed: int = 0, offset: float = 0.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, D)) + offset).to(dtype)


def assert_within(seen, wanted, bound) -> None:
    excess = np.abs(np.asarray(seen, dtype=float) - wanted) - bound
    assert np.isfinite(excess).all()
    assert excess.max() <= 0, f"worst entry exceeds its bound by {excess.max():.3g}"


# --- values -----------------------------------------------------------------------------------------


@over_dtypes
@pytest.mark.parametrize("offset", [0.0, 1e4], ids=["centred", "offset"])
@over_kernels
def test_a_tile_is_the_formula(kernel, offset, dtype):
    # The points are rounded first, then taken as exact: an offset of 1e4 leaves three digits in float32.
    X, Z = points(7, 1, offset, dtype), points(5, 2, offset, dtype)
    K = kernel(X, Z)
    assert K.dtype == dtype
    assert_within(K, oracles.tile(kernel, X, Z), oracles.rounding(kernel, X, Z, EPS[dtype]))


@pytest.mark.parametrize("kernel", [*RADIAL, *SEPARABLE], ids=name)
def test_an_offset_of_the_inputs_costs_a_stationary_kernel_no_digits(kernel):
    # Origin at the basis vectors: without it |x|² = 3e8 would leave an error of 3e8 · 1e-7 in float32.
    X, Z = points(7, 1, 1e4, torch.float32), points(5, 2, 1e4, torch.float32)
    # The Matérn 1/2 alone is steep where points meet; none do here, so all are near single precision.
    assert np.abs(kernel(X, Z).numpy() - oracles.tile(kernel, X, Z)).max() < 1e-4


@pytest.mark.parametrize(("kernel", "theirs"), SKLEARN, ids=name)
def test_a_tile_is_scikit_learns(kernel, theirs):
    X, Z = points(20, 3).abs() + 0.1, points(15, 4).abs() + 0.1
    bound = oracles.rounding(kernel, X, Z, EPS[torch.float64])
    assert_within(kernel(X, Z), theirs(X.numpy(), Z.numpy()), 4 * bound + 1e-14)  # theirs rounds too


@over_kernels
def test_a_bound_kernel_may_be_used_block_by_block(kernel):
    X, Z = points(11, 5), points(4, 6)
    columns = kernel.columns(Z)
    blocks = torch.cat([columns(X[:1]).clone(), columns(X[1:7]).clone(), columns(X[7:]).clone()])
    assert_within(blocks, kernel(X, Z).numpy(), 2 * oracles.rounding(kernel, X, Z, EPS[torch.float64]))


@over_kernels
def test_tiles_of_any_shape_do_not_share_memory(kernel):
    columns = kernel.columns(points(4, 6))
    first = columns(points(6, 1))
    before = first.clone()
    columns(points(6, 2))
    assert torch.equal(first, before)


@over_kernels
def test_inputs_are_left_as_they_are(kernel):
    X, Z = points(6, 7), points(4, 8)
    before = X.clone(), Z.clone()
    kernel(X, Z)
    kernel.diag(X)
    kernel.traced(X, Z)[1](torch.ones(6, 4, dtype=torch.float64))
    assert torch.equal(X, before[0])
    assert torch.equal(Z, before[1])


@over_kernels
def test_a_gram_matrix_is_symmetric_and_positive_semidefinite(kernel):
    X = torch.cat([points(20, 9), points(5, 9)])  # five points occur twice
    K, bound = kernel(X, X).numpy(), oracles.rounding(kernel, X, X, EPS[torch.float64])
    assert_within(K, K.T, bound + bound.T)
    # Weyl: an error E moves eigenvalues by its spectral norm, which the Frobenius norm bounds.
    slack = np.linalg.norm(bound) + 25 * EPS[torch.float64] * np.trace(K)
    assert np.linalg.eigvalsh((K + K.T) / 2).min() >= -slack


@over_dtypes
@over_kernels
def test_diag_is_the_diagonal(kernel, dtype):
    n = 70 if isinstance(kernel, Function) else 12  # more than one block of `Function`
    X = points(n, 10, dtype=dtype)
    wanted = np.array([oracles.value(kernel, x, x) for x in X.double().numpy()])
    whole = oracles.rounding(kernel, X, X, EPS[dtype]).diagonal()
    assert kernel.diag(X).shape == (n,)
    assert kernel.diag(X).dtype == dtype
    assert_within(kernel.diag(X), wanted, whole)
    assert_within(kernel(X, X).diagonal(), wanted, whole)


def test_a_normalized_kernel_is_zero_where_a_row_has_no_length():
    X = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    wanted = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert torch.allclose(Normalized(Linear())(X, X), wanted, rtol=4 * EPS[torch.float64], atol=0)
    assert Normalized(Linear()).diag(X).tolist() == [0.0, 1.0]


@given(
    family=st.sampled_from(
        [Gaussian, Matern12, Matern32, Matern52, RationalQuadratic, Laplacian, Separable, Linear, Polynomial]
    ),
    n=st.integers(1, 5),
    m=st.integers(1, 5),
    d=st.integers(1, 6),
    scale=st.floats(-6, 6).map(lambda e: 10.0**e),
    ratio=st.floats(-2, 2).map(lambda e: 10.0**e),
    ard=st.booleans(),
    single=st.booleans(),
    seed=st.integers(0, 2**20),
)
@few
def test_shapes_and_scales_do_not_matter(family, n, m, d, scale, ratio, ard, single, seed):
    rng, dtype = np.random.default_rng(seed), torch.float32 if single else torch.float64
    X, Z = (torch.from_numpy(scale * rng.normal(size=(rows, d))).to(dtype) for rows in (n, m))
    lengths = (scale * ratio * rng.uniform(0.5, 2, d)).tolist() if ard else scale * ratio
    kernel = family(length_scale=lengths) if issubclass(family, Stationary) else family()
    bound = oracles.rounding(kernel, X, Z, EPS[dtype])
    assert_within(kernel(X, Z), oracles.tile(kernel, X, Z), bound + np.finfo(np.float32).tiny)


def test_a_precomputed_matrix_is_looked_up_by_index():
    train = points(6, 11)
    K = oracles.tile(Gaussian(), train, train)
    rows = torch.from_numpy(np.column_stack([K, np.arange(6)]))
    chosen = [4, 0, 2]
    tile = Precomputed()(rows, rows[chosen])
    assert np.array_equal(tile, K[:, chosen])
    assert np.array_equal(tile, oracles.tile(Precomputed(), rows, rows[chosen]))
    assert np.array_equal(Precomputed().diag(rows), K.diagonal())


# --- gradients --------------------------------------------------------------------------------------


@over_kernels
def test_gradients_are_finite_differences(kernel):
    X, Z = points(5, 12), points(4, 13)
    weight = np.random.default_rng(14).normal(size=(5, 4))
    tile, pull = kernel.traced(X, Z)
    by_parameter, by_X, by_Z = pull(torch.from_numpy(weight))

    def total(kernel, X, Z):
        return float((weight * oracles.tile(kernel, X, Z)).sum())

    # Central differences are good to step² + eps/step ≈ 1e-10 of values that are here below 1e3.
    close = {"rtol": 1e-6, "atol": 1e-7}
    wanted = oracles.parameter_slopes(kernel, lambda changed: total(changed, X, Z))
    assert set(by_parameter) == set(wanted) == set(kernel.tunable())
    for name, value in wanted.items():
        assert by_parameter[name].shape == value.shape
        np.testing.assert_allclose(by_parameter[name], value, err_msg=name, **close)
    np.testing.assert_allclose(by_X, oracles.slopes(lambda A: total(kernel, A, Z), X), **close)
    np.testing.assert_allclose(by_Z, oracles.slopes(lambda A: total(kernel, X, A), Z), **close)
    assert_within(tile, oracles.tile(kernel, X, Z), oracles.rounding(kernel, X, Z, EPS[torch.float64]))


@over_smooth
def test_gradients_are_finite_differences_where_points_coincide(kernel):
    X = points(4, 15)
    weight = np.random.default_rng(16).normal(size=(4, 4))
    _, by_X, _ = kernel.traced(X, X)[1](torch.from_numpy(weight))
    wanted = oracles.slopes(lambda A: float((weight * oracles.tile(kernel, A, X)).sum()), X)
    # The Matérn 3/2 has a kink in its second derivative there: the difference is off by the step, 1e-5.
    np.testing.assert_allclose(by_X, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outputs", [0, 1, 3])
@over_kernels
def test_slopes_are_autograds_gradients_in_the_rows(kernel, outputs):
    X, Z, W = points(6, 24), points(5, 25), points(5, 26)[:, :outputs]
    at = X.clone().requires_grad_()
    nothing = 0 * at.sum()  # a constant kernel knows nothing of its rows
    each = [torch.autograd.grad((kernel(at, Z) @ w).sum() + nothing, at, retain_graph=True)[0] for w in W.T]
    seen = kernel.columns(Z).slopes(X, W)
    assert seen.shape == (6, D, outputs)
    for o, wanted in enumerate(each):
        assert_close(seen[..., o], wanted)


@pytest.mark.parametrize("kernel", [*RADIAL, *SEPARABLE], ids=name)
def test_the_slope_of_a_point_on_a_basis_vector_leaves_that_one_out(kernel):
    # A smooth kernel is flat there, one with a cusp has no slope there and is taken as flat.
    X, W = points(4, 27), torch.ones(4, 1, dtype=torch.float64)
    seen = kernel.columns(X).slopes(X, W)
    for i in range(4):
        others = [j for j in range(4) if j != i]
        # The distance of equal points is computed as √eps at most, as in the test of equal points above.
        assert_close(seen[i : i + 1], kernel.columns(X[others]).slopes(X[i : i + 1], W[others]), rtol=0, atol=1e-6)


def test_a_function_without_torchs_operations_has_no_slope():
    with pytest.raises((ValueError, RuntimeError), match="grad"):
        Function(pairwise.laplacian_kernel).columns(points(3)).slopes(points(2), points(3)[:, :1])


@over_dtypes
@over_kernels
def test_gradients_are_finite_where_points_coincide(kernel, dtype):
    X = points(6, 17, dtype=dtype)
    X[1], X[2], X[3] = X[0], 0.0, X[2]
    by_parameter, by_X, by_Z = kernel.traced(X, X.clone())[1](torch.ones(6, 6, dtype=dtype))
    assert all(value.isfinite().all() for value in (*by_parameter.values(), by_X, by_Z))


@over_dtypes
@pytest.mark.parametrize("kernel", RADIAL, ids=name)
def test_a_pair_of_equal_points_pulls_on_nothing(kernel, dtype):
    X = points(6, 18, dtype=dtype)
    by_parameter, by_X, by_Z = kernel.traced(X, X)[1](torch.eye(6, dtype=dtype))
    # The distance of equal points is computed as √eps at most, and so is what it passes on.
    slack = 100 * EPS[dtype] ** 0.5
    assert max(value.abs().max() for value in (*by_parameter.values(), by_X, by_Z)) <= slack


@pytest.mark.parametrize("family", [Gaussian, Matern12, Matern32, Matern52, RationalQuadratic])
def test_a_slope_is_the_derivative_of_its_profile(family):
    t = -torch.tensor([1e-3, 0.01, 0.5, 3.0, 40.0], dtype=torch.float64)
    value, slope = family().profile_and_slope(t.clone())
    assert_close(value, family().profile(t.clone()))
    step = 1e-5 * t.abs()
    rise = family().profile(t + step) - family().profile(t - step)
    assert_close(slope, rise / (2 * step), rtol=1e-5, atol=1e-9)


def test_a_profile_alone_is_enough_for_gradients():
    X, Z, weight = points(5, 2), points(4, 2), torch.rand(5, 4, dtype=torch.float64)
    by_parameter, _, by_Z = Steeper(1.3).traced(X, Z)[1](weight)
    same, _, same_Z = Gaussian(1.3 / 2).traced(X, Z)[1](weight)  # ½ of it in Gaussian's coefficient
    assert_close(by_parameter["length_scale"], same["length_scale"] / 2)
    assert_close(by_Z, same_Z)
    W = weight[0][:, None]
    assert_close(Steeper(1.3).columns(Z).slopes(X, W), Gaussian(1.3 / 2).columns(Z).slopes(X, W))


def test_gradients_of_far_points_are_zero_and_not_slow_numbers():
    X = torch.tensor([[0.0], [1.0], [1e3], [1e8]], dtype=torch.float32)
    for kernel in (Gaussian(), Matern32(), 2.0 * Matern52() + 0.5, Laplacian(), Separable(q=0.8)):
        tile, pull = kernel.traced(X, X)
        by_parameter, by_X, _ = pull(torch.ones(4, 4))
        assert bool(tile.isfinite().all())
        assert bool(by_X.isfinite().all())
        assert all(bool(value.isfinite().all()) for value in by_parameter.values())
        assert float(by_X[3].abs()) == 0.0


@over_kernels
def test_the_inputs_gradients_are_left_out_where_nobody_asks(kernel):
    X, Z = points(5, 12), points(4, 13)
    weight = torch.ones(5, 4, dtype=torch.float64)
    with_inputs, _, _ = kernel.traced(X, Z)[1](weight)
    tile, pull = kernel.traced(X, Z, inputs=False)
    without, by_X, by_Z = pull(weight)
    assert not tile.requires_grad
    assert not by_X.any()
    assert not by_Z.any()
    assert set(without) == set(kernel.tunable())
    for name, value in without.items():
        assert torch.allclose(value, with_inputs[name], rtol=1e-13)


@pytest.mark.parametrize(
    "kernel", [Function(pairwise.laplacian_kernel), Precomputed()], ids=["Function", "Precomputed"]
)
def test_a_kernel_without_parameters_has_none_to_pull_on(kernel):
    X = torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 1.0]], dtype=torch.float64)
    _, pull = kernel.traced(X, X, inputs=False)
    by_parameter, by_X, by_Z = pull(torch.ones(2, 2, dtype=torch.float64))
    assert by_parameter == {}
    assert not by_X.any()
    assert not by_Z.any()


@over_smooth
def test_tracing_works_inside_no_grad(kernel):
    with torch.no_grad():
        by_parameter, _, _ = kernel.traced(points(3, 1), points(2, 2))[1](torch.ones(3, 2, dtype=torch.float64))
    assert set(by_parameter) == set(kernel.tunable())


# --- parameters -------------------------------------------------------------------------------------


def plain(kernel: Kernel) -> dict:
    """All parameters but the nested parts themselves, which compare by identity."""
    return {name: value for name, value in kernel.get_params().items() if not isinstance(value, Kernel)}


@over_kernels
def test_a_clone_has_the_same_parameters_and_no_shared_parts(kernel):
    copy = clone(kernel)
    assert copy is not kernel
    assert plain(copy) == plain(kernel)
    assert not {id(p) for p in copy.parts().values()} & {id(p) for p in kernel.parts().values()}


@over_kernels
def test_a_kernel_survives_pickling(kernel):
    copy = pickle.loads(pickle.dumps(kernel))
    assert plain(copy) == plain(kernel)
    assert torch.equal(copy(points(3), points(3)), kernel(points(3), points(3)))


@pytest.mark.parametrize("kernel", [*RADIAL, *DOT, *COMPOSED, Precomputed()], ids=lambda k: " ".join(repr(k).split()))
def test_a_repr_is_the_code_that_makes_the_kernel(kernel):
    again = eval(repr(kernel), vars(kernels))
    assert type(again) is type(kernel)
    assert plain(again) == plain(kernel)
    assert repr(again) == repr(kernel)


@over_kernels
def test_tunable_names_are_scikit_learns(kernel):
    assert set(kernel.tunable()) <= set(kernel.get_params())
    for name, value in kernel.tunable().items():
        doubled = (2 * np.asarray(value)).tolist()
        by_sklearn, by_mercer = clone(kernel).set_params(**{name: doubled}), kernel.replaced({name: doubled})
        assert by_sklearn.tunable() == by_mercer.tunable()
        assert by_mercer.tunable()[name] == doubled
        assert kernel.tunable()[name] == value


def test_parameters_of_parts_have_nested_names():
    kernel = Sum(Scaled(Gaussian(2.0)), Bias())
    assert set(kernel.tunable()) == {"left__kernel__length_scale", "left__variance", "right__variance"}
    kernel.set_params(left__kernel__length_scale=3.0)
    assert kernel.left.kernel.length_scale == 3.0
    assert Scaled(Gaussian()).get_params()["kernel__length_scale"] == 1.0


def test_operators_compose():
    X, Z = points(4), points(3, 1)
    left, right = Gaussian(), Linear()
    assert torch.equal((left + right)(X, Z), Sum(left, right)(X, Z))
    assert torch.equal((left * right)(X, Z), Product(left, right)(X, Z))
    assert torch.equal((2 + left * 3)(X, Z), Sum(Scaled(left, 3), Bias(2))(X, Z))


@pytest.mark.usefixtures("two_folds")
def test_a_grid_search_goes_over_a_length_scale():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (80, 1))
    y = np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=80)
    kernel = Gaussian()
    model = mercer.GreedyKernelRegressor(12, kernel=kernel, regularization=1e-2, random_state=0)
    grid = [1e-3, 0.3, 1e3]  # too short to generalise, about right, too long to bend
    search = GridSearchCV(model, {"kernel__length_scale": grid}, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_ == {"kernel__length_scale": 0.3}
    assert search.best_estimator_.kernel_.length_scale == 0.3
    assert kernel.length_scale == 1.0


# --- names and refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(Kernel.choices()))
def test_a_short_name_gives_the_kernel_of_that_name(name):
    kernel = as_kernel(name)
    assert name in (kernel.short_name, *kernel.aliases)


def test_names_that_others_use_are_understood():
    assert type(as_kernel("rbf")) is Gaussian
    assert type(as_kernel("poly")) is Polynomial


def classes(kind: type[Component]) -> list[type[Component]]:
    return [kind, *(one for sub in kind.__subclasses__() for one in classes(sub))]


@pytest.mark.parametrize("kind", [one for one in classes(Kernel) if one.__module__.startswith("mercer.")])
def test_a_kernel_is_abstract_or_final(kind):
    assert getattr(kind, "__final__", False) != bool(kind.__abstractmethods__)


def test_a_final_kernel_has_no_heirs():
    # A changed formula would go with its parent's gradient and its parent's program on a GPU.
    with pytest.raises(TypeError, match="Gaussian is final, Squared must derive from its abstract parent"):
        type("Squared", (Gaussian,), {})


@over_kernels
def test_rows_prepared_for_one_basis_serve_another(kernel):
    X, Z, other = points(9, 21), points(4, 22), points(3, 23)
    rows, columns = kernel.columns(Z).prepare(X)
    assert len(rows) == len(X)
    bound = oracles.rounding(kernel, X, torch.cat([Z, other]), EPS[torch.float64])
    wide = 16 * bound.max()  # the origin is that of the first basis, a few units away
    assert_within(columns(rows[2:5]), kernel(X[2:5], Z).numpy(), wide)
    assert_within(columns.with_basis(other)(rows), kernel(X, other).numpy(), wide)


def test_what_is_no_name_is_taken_as_it_is():
    kernel = Gaussian()
    assert as_kernel(kernel) is kernel
    assert as_kernel(cosines).function is cosines


def test_a_new_kernel_is_its_profile_and_a_constant():
    @component
    class Cauchy(Radial):
        length_scale: float = 1.0

        def profile(self, t):
            return 1 / (1 - t)

    X, Z = points(4), points(3, 1)
    assert torch.allclose(Cauchy(1.3)(X, Z), 1 / (1 + torch.cdist(X, Z) ** 2 / 1.3**2))
    assert set(Cauchy().tunable()) == {"length_scale"}


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda X: Gaussian(-1.5)(X, X), "length_scale must be positive .* got -1.5"),
        (lambda X: Matern32(0.0)(X, X), "length_scale must be positive .* got 0.0"),
        (lambda X: Laplacian(float("nan"))(X, X), "length_scale must be positive .* got nan"),
        (lambda X: Matern52([1.0, -2.0, 3.0])(X, X), r"must be positive .* got \[1.0, -2.0, 3.0\]"),
        (lambda X: Separable(p=2.5)(X, X), "p must be a number above 0 and at most 2, got 2.5"),
        (lambda X: Separable(p=1.0, q=1.5)(X, X), "q must be a number above 0 and at most p=1, got 1.5"),
        (lambda X: as_kernel(Gaussian), r"kernel must be an object such as Gaussian\(\), got the class itself"),
        (lambda X: as_kernel(sum([Gaussian()] * 2000)), "kernel must be nested at most 150 deep.*nested deeper"),
        (lambda X: as_kernel(int), "kernel must be one of .* got <class 'int'>"),
        (lambda X: as_kernel(Scaled(Gaussian(), -1.0) + 1.0), "variance must be one number of at least 0, got -1"),
        (lambda X: Gaussian([1.0, 2.0])(X, X), r"one number or one per input \(3\), got shape \(2,\)"),
        (lambda X: RationalQuadratic([[1.0]])(X, X), r"one per input \(3\), got shape \(1, 1\)"),
        (lambda X: as_kernel("gausian"), r"kernel must be one of \['bias', .* got 'gausian'"),
        (lambda X: as_kernel(7), "or a Kernel object, got 7"),
        (lambda X: Function(lambda A, B: A)(X, X[:2]), r"must return shape \(4, 2\), got \(4, 3\)"),
        (lambda X: Function(lambda A, B: 1.0)(X, X[:2]), r"must return shape \(4, 2\), got \(\)"),
        (lambda X: Function(lambda A, B: A @ B.T / 0.0 * 0.0)(X, X), "must return finite numbers, got nan"),
        (lambda X: Gaussian().set_params(lenght_scale=1.0), "Invalid parameter 'lenght_scale'"),
        (lambda X: Scaled(Gaussian()).set_params(kernel__width=1.0), "Invalid parameter 'width'"),
    ],
    ids=[
        "negative", "zero", "nan", "one negative", "p too large", "q above p", "a class", "too deep", "another class",
        "a bad part", "too few", "a matrix", "misspelt", "a number",
        "wrong shape", "no shape", "nan of a function", "unknown parameter", "unknown parameter of a part",
    ],
)  # fmt: skip
def test_what_makes_no_kernel_is_refused_in_a_sentence(ask, words):
    with pytest.raises(ValueError, match=words):
        ask(points(4))


@pytest.mark.parametrize(
    "function",
    [
        lambda A, B: np.exp(-np.square(A[:, None] - B[None]).sum(-1)),
        lambda A, B: np.exp(-np.sum((np.asarray(A)[:, None] - np.asarray(B)[None]) ** 2, axis=-1)),
        lambda A, B: torch.exp(-(torch.cdist(A, B) ** 2)),
        lambda A, B: np.exp(-(torch.cdist(A, B) ** 2)),
    ],
    ids=["methods of tensors in NumPy", "arrays", "torch", "both"],
)
def test_a_function_may_be_written_in_numpy_or_in_torch_without_a_warning(function):
    X, Z = points(7, 3), points(5, 3)
    tile = Function(function)(X, Z)
    assert type(tile) is torch.Tensor
    assert_close(tile, Gaussian(0.5**0.5)(X, Z))


def test_a_function_in_numpy_is_refused_where_gradients_are_wanted():
    X = points(7, 3)
    with pytest.raises(ValueError, match="the kernel function must be written in torch"):
        Function(lambda A, B: np.exp(A @ B.T)).traced(X, X)


BAD = ["x", None, 0, -1, float("inf"), 1e-320, 10**400, True, "1.0", [], [1.0, 0.0, 2.0], [1.0, "x", 2.0], [1.0, [2.0]]]


@pytest.mark.parametrize("family", [Gaussian, Matern12, Matern32, Matern52, RationalQuadratic, Laplacian, Separable])
@pytest.mark.parametrize("length", BAD, ids=lambda value: str(value)[:20])
def test_a_bad_length_scale_is_refused_with_and_without_rows(family, length):
    kernel, words = family(length_scale=length), r"length_scale must be positive \(from 1e-100 to 1e\+100\), .* got "
    with pytest.raises(ValueError, match=words):
        kernel.columns(points(2))
    with pytest.raises(ValueError, match=words):
        as_kernel(2.0 * kernel + 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kernel", [Gaussian(), Matern12(), Matern32(), Matern52()], ids=repr)
def test_the_deepest_value_is_below_what_is_kept_and_above_denormal_numbers(kernel, dtype):
    at = kernel.profile(torch.full((1,), kernel.underflow_threshold(dtype), dtype=dtype))
    assert torch.finfo(dtype).tiny < float(at) < torch.finfo(dtype).tiny ** 0.5


@pytest.mark.parametrize("kernel", [*RADIAL, RationalQuadratic(alpha=0.7), RationalQuadratic(alpha=2.0)], ids=name)
def test_a_tile_for_one_look_is_the_tile_and_a_kept_one_is_left_alone(kernel):
    X, columns = points(40, 3), kernel.columns(points(30, 4))
    kept, copy = columns(X), columns(X).clone()
    left, prepared = columns.prepare(X)
    assert_close(prepared.temporary_tile(left), kept, rtol=0, atol=0)
    prepared.product(left + 1.0, torch.ones(30, 2, dtype=torch.float64))
    assert torch.equal(kept, copy)


def test_gradients_of_tiles_import_nothing_that_takes_a_second(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)  # whoever imports it fails
    X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    tile, pull = Gaussian(0.5).traced(X, X)
    by_parameter, by_X, by_Z = pull(torch.ones_like(tile))
    assert float(by_parameter["length_scale"]) > 0
    assert_close(by_X, by_Z)
