"""What theory promises of mixtures of local experts: exact steps, a likelihood that never falls, no collapse."""

from __future__ import annotations

from dataclasses import replace
from inspect import isabstract
from typing import Any

import numpy as np
import oracles_mixture as oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.data import TensorRows
from mercer.engine import Sample, make_plan
from mercer.mixture.class_experts import Categorical, LogisticExperts, Owned
from mercer.mixture.em import Mixture, expectation, fit_em, maximisation
from mercer.mixture.experts import ConstantExperts, Experts, LinearExperts, NoExperts
from mercer.mixture.features import Features
from mercer.mixture.fit import MixtureSettings, assigned, fit_classes, fit_mixture, partition
from mercer.mixture.gates import COVARIANCES, EXPANSION_ERROR, Floor, make_gates
from mercer.mixture.n_components import split
from mercer.mixture.output_weights import class_shares, least_squares, logistic_weights, loss_and_slopes

N, D, K = 150, 3, 4
over_kinds = pytest.mark.parametrize("kind", COVARIANCES)


def draw(n: int = N, d: int = D, seed: int = 0, n_classes: int = 0, scale: float = 1.0) -> Sample:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2 * rng.integers(0, 3, size=(n, 1))
    f = np.sin(X[:, 0]) + 0.5 * X[:, -1] + 0.3 * rng.normal(size=n)
    y = np.digitize(f, np.quantile(f, np.arange(1, n_classes) / n_classes)) if n_classes else f
    X = scale * (X - X.mean(0))
    weight = rng.integers(1, 4, size=n).astype(float)
    as_tensor = lambda a: torch.as_tensor(np.asarray(a, dtype=float))  # noqa: E731
    plan = make_plan(n, device="cpu", dtype="float64", memory_limit=1 << 28)
    return Sample(TensorRows(as_tensor(X)), as_tensor(y)[:, None], as_tensor(weight), plan)


def X_of(sample: Sample) -> np.ndarray:
    return sample.rows.take(torch.arange(sample.rows.n_rows)).numpy()


def setting(sample: Sample, kind: str = "full", **options: Any) -> MixtureSettings:
    variance = torch.as_tensor(np.average(X_of(sample) ** 2, axis=0, weights=sample.weight.numpy()))
    return MixtureSettings(kind=kind, variance=variance, **options)


EXPERTS: dict[str, Any] = {
    "none": lambda k, d: NoExperts(),
    "constant": lambda k, d: ConstantExperts.start(k, torch.ones(1, dtype=torch.float64), 1e-4),
    "linear": lambda k, d: LinearExperts.start(k, d, torch.ones(1, dtype=torch.float64), 1e-4, 1e-2),
    "categorical": lambda k, d: Categorical(torch.full((k, 3), 1 / 3, dtype=torch.float64)),
    "logistic": lambda k, d: LogisticExperts.start(k, d, 2, 1e-2, 300.0, torch.device("cpu")),
    "softmax": lambda k, d: LogisticExperts.start(k, d, 3, 1e-2, 300.0, torch.device("cpu")),
}
CLASSES = {"categorical": 3, "logistic": 2, "softmax": 3}
over_experts = pytest.mark.parametrize("name", EXPERTS)


def begin(sample: Sample, name: str, kind: str = "full", k: int = K, seed: int = 0, **options: Any) -> Mixture:
    labels = partition(sample, k, "random", np.random.default_rng(seed))
    d = sample.rows.n_columns
    return assigned(sample, labels, lambda m: EXPERTS[name](m, d), setting(sample, kind, **options))


def never_falls(path: Any) -> bool:
    """Up to what float64 sums over rows can lose."""
    return bool((np.diff(path) >= -1e-10 * (1 + np.abs(path[1:]))).all())


# --- densities --------------------------------------------------------------------------------------


@over_kinds
def test_the_gates_densities_are_those_of_scipy_in_both_forms(kind):
    sample = draw()
    mixture = begin(sample, "none", kind)
    X, gates = X_of(sample), mixture.gates
    expected = oracles.log_gates(X, *(np.asarray(a) for a in (gates.weights, gates.means, gates.covariances))).T
    assert gates.expandable
    np.testing.assert_allclose(gates.whitened(torch.as_tensor(X.T)), expected, rtol=1e-10)
    np.testing.assert_allclose(mixture.log_gates()(torch.as_tensor(X.T)), expected, rtol=1e-10)


def test_components_too_tight_for_the_expanded_form_are_whitened():
    floor = Floor("full", torch.full((2,), 1e-14, dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
    tight = make_gates(
        torch.ones(1, dtype=torch.float64),
        torch.full((1, 2), 3.0, dtype=torch.float64),
        1e-12 * torch.eye(2, dtype=torch.float64)[None],
        floor,
    )
    assert not tight.expandable
    mixture = Mixture(tight, NoExperts(), floor, Features(2, products=True))
    x = torch.tensor([[3.0 + 1e-6], [3.0]], dtype=torch.float64)
    exact = -0.5 - np.log(2 * np.pi) + 12 * np.log(10)
    assert abs(float(mixture.log_gates()(x)) - exact) < 1e-6
    assert abs(float(tight.coefficients(mixture.layout) @ mixture.layout.of(x)) - exact) > EXPANSION_ERROR


# --- steps ------------------------------------------------------------------------------------------


@over_kinds
@pytest.mark.parametrize("name", ["constant", "linear"])
def test_an_iteration_is_the_textbooks(kind, name):
    sample = draw()
    X, y, w = X_of(sample), sample.Y[:, 0].numpy(), sample.weight.numpy()
    start = begin(sample, name, kind)
    gates, experts = start.gates, start.experts
    coef = experts.coef[:, 0].numpy() if name == "linear" else np.zeros((K, D))
    logs = oracles.log_gates(X, *(np.asarray(a) for a in (gates.weights, gates.means, gates.covariances)))
    logs = logs + oracles.log_experts(X, y, coef, experts.intercept[:, 0].numpy(), experts.noise[:, 0].numpy())
    state = expectation(sample, start)
    penalty = 0.5 * 1e-2 * sum(b @ b / s2 for b, s2 in zip(coef, experts.noise[:, 0].numpy(), strict=True))
    expected = w @ np.logaddexp.reduce(logs, axis=1) - (penalty if name == "linear" else 0.0)
    assert abs(state.objective - expected) < 1e-9 * abs(expected)
    R = w[:, None] * oracles.responsibilities(logs)
    after = maximisation(start, state)
    weights, means, covariances = oracles.gates_step(X, R, kind)
    np.testing.assert_allclose(after.gates.weights, weights, rtol=1e-9)
    np.testing.assert_allclose(after.gates.means, means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(after.gates.covariances, covariances, rtol=1e-7, atol=1e-9)
    if name == "linear":
        b, b0, noise = oracles.linear_step(X, y, R, 1e-2)
        np.testing.assert_allclose(after.experts.coef[:, 0], b, rtol=1e-6, atol=1e-8)
    else:
        b0, noise = oracles.constant_step(y, R)
    np.testing.assert_allclose(after.experts.intercept[:, 0], b0, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(after.experts.noise[:, 0], np.maximum(noise, 1e-4), rtol=1e-7)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_a_newton_step_uses_the_slope_and_curvature_that_automatic_differentiation_finds(name):
    sample = draw(n_classes=CLASSES[name])
    rng = np.random.default_rng(1)
    experts = begin(sample, name).experts
    coef = 0.3 * torch.as_tensor(rng.normal(size=experts.coef.shape))
    if coef.shape[1] > 1:
        coef[:, :, 0] -= coef[:, :, 0].mean(1, keepdim=True)
    experts = replace(experts, coef=coef)
    x, y = torch.as_tensor(X_of(sample).T).contiguous(), sample.Y.T
    R = torch.as_tensor(rng.dirichlet(np.ones(K), size=N).T).contiguous()
    layout = Features(D, products=True)
    sums = experts.sums(x, y, R, layout.of(x))

    def value(flat, j):
        trial = replace(experts, coef=torch.cat([coef[:j], flat.reshape(1, *coef.shape[1:]), coef[j + 1 :]]))
        return (R * trial.log_density(x, y)).sum() - trial.penalty()

    stepped = experts.updated(R @ layout.of(x).T, sums, layout).coef
    for j in range(K):
        flat = coef[j].flatten()
        slope = torch.autograd.functional.jacobian(lambda b, j=j: value(b, j), flat)
        bend = torch.autograd.functional.hessian(lambda b, j=j: value(b, j), flat)
        step = -torch.linalg.pinv(bend, rtol=1e-10) @ slope
        np.testing.assert_allclose(stepped[j].flatten() - flat, step, rtol=1e-6, atol=1e-7)


def test_the_step_of_the_bound_never_lowers_the_likelihood_and_rests_where_newtons_does(monkeypatch):
    sample = draw(n_classes=3)
    newton = fit_em(sample, begin(sample, "softmax", k=1), 50, 0.0).mixture.experts
    monkeypatch.setattr("mercer.mixture.class_experts.LARGEST_HESSIAN", 0)
    start = begin(sample, "softmax", k=1)
    assert start.experts.bounded
    assert len(expectation(sample, start).sums) == 1  # slopes, and no curvature
    result = fit_em(sample, start, 2000, 0.0)
    assert never_falls(result.path)
    # a step is a half of Newton's at least near p = 1/2, so 2000 of them are at rest
    np.testing.assert_allclose(result.mixture.experts.coef, newton.coef, atol=1e-5)


@over_kinds
@over_experts
def test_the_objective_never_falls(kind, name):
    sample = draw(n_classes=CLASSES.get(name, 0))
    mixture = begin(sample, name, kind, k=6)
    state = expectation(sample, mixture)
    for _ in range(25):  # bare M steps, so that no safeguard of the loop hides a fall
        mixture = maximisation(mixture, state, 0.5 if mixture.experts.newton else 1.0)
        after = expectation(sample, mixture)
        assert after.objective >= state.objective - 1e-10 * abs(state.objective)
        state = after


@settings(max_examples=20, deadline=None)
@given(
    st.integers(3, 60),
    st.integers(1, 5),
    st.integers(1, 7),
    st.floats(-3, 3),
    st.sampled_from(COVARIANCES),
    st.sampled_from(sorted(EXPERTS)),
    st.integers(0, 1000),
)
def test_the_loop_never_falls_whatever_the_shapes_and_scales(n, d, k, log_scale, kind, name, seed):
    sample = draw(n, d, seed, CLASSES.get(name, 0), 10**log_scale)
    result = fit_em(sample, begin(sample, name, kind, k, seed, floor=1e-3), max_iter=12, tol=0.0)
    path = np.array(result.path)
    assert np.isfinite(path).all()
    assert never_falls(path)
    again = expectation(sample, result.mixture).objective / sample.total_weight
    assert abs(again - path[-1]) < 1e-8 * (1 + abs(again))
    assert result.stop_reason


def test_a_floor_that_binds_neither_lowers_the_likelihood_nor_is_crossed():
    sample = draw(40)
    mixture = begin(sample, "linear", "full", k=8, floor=0.05)
    least = mixture.floor.variance.sqrt()
    result = fit_em(sample, mixture, 60, 0.0)
    assert never_falls(result.path)
    scaled = result.mixture.gates.covariances / least[:, None] / least
    values = torch.linalg.eigvalsh(scaled)
    assert float(values.min()) > 1 - 1e-9
    assert float(values.min()) < 1 + 1e-6  # so it did bind


def test_where_the_floor_binds_the_covariance_is_the_most_likely_of_those_allowed():
    rng = np.random.default_rng(0)
    S = torch.as_tensor(np.cov(rng.normal(size=(3, 20)) * np.array([[1.0], [0.1], [0.01]])))
    floor = Floor("full", torch.full((3,), 0.01, dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
    ones = torch.ones(1, dtype=torch.float64)
    best = make_gates(ones, torch.zeros(1, 3, dtype=torch.float64), S[None], floor).covariances[0]

    def likelihood(C):
        return float(-torch.logdet(C) - torch.trace(torch.linalg.solve(C, S)))

    for _ in range(200):
        A = torch.as_tensor(rng.normal(size=(3, 3)) * rng.choice([0.01, 0.1, 1.0]))
        other = (
            torch.diag(floor.variance) + rng.uniform() * A @ A.T + (best - torch.diag(floor.variance)) * rng.uniform()
        )
        assert likelihood(other) <= likelihood(best) + 1e-9


# --- the loop ---------------------------------------------------------------------------------------


@over_experts
def test_blocks_of_a_few_rows_give_the_same_sums_as_one(name, monkeypatch):
    sample = draw(n_classes=CLASSES.get(name, 0))
    mixture = begin(sample, name)
    whole = expectation(sample, mixture)
    monkeypatch.setattr(Mixture, "block_rows", lambda self, plan: 7)
    pieces = expectation(sample, mixture)
    assert abs(whole.objective - pieces.objective) < 1e-10 * abs(whole.objective)
    np.testing.assert_allclose(whole.moments, pieces.moments, rtol=1e-9, atol=1e-9)
    for value, sum_of_pieces in zip(whole.sums, pieces.sums, strict=True):
        np.testing.assert_allclose(value, sum_of_pieces, rtol=1e-9, atol=1e-9)


def test_a_component_left_without_rows_is_removed():
    X = torch.zeros(30, 2, dtype=torch.float64)
    ones = torch.ones(30, dtype=torch.float64)
    sample = Sample(TensorRows(X), ones[:, None], ones, make_plan(30, device="cpu", dtype="float64"))
    one = begin(sample, "none", k=1)
    two = split(one, 0)
    far = two.gates.means.clone()
    far[1] += 1e6
    lost = replace(two, gates=make_gates(two.gates.weights, far, two.gates.covariances, two.floor))
    result = fit_em(sample, lost, 20, 1e-8)
    assert never_falls(result.path)
    assert np.isfinite(result.mixture.gates.means.numpy()).all()
    assert result.mixture.gates.weights.sum() == pytest.approx(1.0)


@over_kinds
def test_splitting_keeps_a_components_weight_mean_and_covariance(kind):
    mixture = begin(draw(), "linear", kind)
    pair = split(mixture, 1).gates
    old, index = mixture.gates, [1, K]
    share = pair.weights[index] / pair.weights[index].sum()
    assert float(pair.weights[index].sum()) == pytest.approx(float(old.weights[1]))
    mean = share @ pair.means[index]
    np.testing.assert_allclose(mean, old.means[1], atol=1e-12)
    if kind in ("full", "diagonal"):
        square = [oracles.covariance_matrix(pair.covariances[j].numpy()) for j in index]
        off = [np.outer(m, m) for m in (pair.means[index] - mean).numpy()]
        whole = sum(float(s) * (c + o) for s, c, o in zip(share, square, off, strict=True))
        np.testing.assert_allclose(whole, oracles.covariance_matrix(old.covariances[1].numpy()), atol=1e-10)


def test_the_mixture_per_class_is_em_within_each_class():
    sample = draw(n_classes=3)
    own = setting(sample, "full", n_init=1, max_iter=15, tol=0.0)
    together = fit_classes(sample, 2, 3, own, np.random.default_rng(0)).mixture
    assert isinstance(together.experts, Owned)
    owner = together.experts.table.argmax(1)
    for c in range(3):
        rows = (sample.Y[:, 0] == c).nonzero()[:, 0]
        alone = sample.here(rows)
        mine = together.select((owner == c).nonzero()[:, 0])
        free = replace(mine, experts=NoExperts())
        state = expectation(alone, free)
        share = float(sample.weight[rows].sum()) / sample.total_weight
        weights = together.gates.weights[owner == c]
        assert float(weights.sum()) == pytest.approx(share)
        joint = maximisation(together, expectation(sample, together)).gates
        np.testing.assert_allclose(maximisation(free, state).gates.means, joint.means[owner == c], atol=1e-9)


def test_several_starts_are_at_least_as_good_as_each_that_was_tried():
    sample = draw(300)
    experts = lambda k: EXPERTS["linear"](k, D)  # noqa: E731
    own = setting(sample, n_init=4, max_iter=30, tol=0.0)
    best = fit_mixture(sample, 5, experts, own, np.random.default_rng(0))
    rng, alone = np.random.default_rng(0), []
    for style in ("k-means++", "targets", "random", "k-means++"):
        alone.append(
            fit_em(sample, assigned(sample, partition(sample, 5, style, rng), experts, own), 30, 0.0).objective
        )
    assert best.objective == pytest.approx(max(alone), abs=1e-9)


# --- on fixed gates ---------------------------------------------------------------------------------


def _activations(sample: Sample, mixture: Mixture) -> np.ndarray:
    gates = mixture.gates
    logs = oracles.log_gates(X_of(sample), *(np.asarray(a) for a in (gates.weights, gates.means, gates.covariances)))
    return oracles.responsibilities(logs)


def test_two_step_weights_are_ridge_regression_on_the_activations():
    sample = draw()
    mixture = begin(sample, "none", "diagonal")
    A, w, y = _activations(sample, mixture), sample.weight.numpy(), sample.Y[:, 0].numpy()
    expected = np.linalg.solve(A.T @ (w[:, None] * A) + 0.1 * np.eye(K), A.T @ (w * y))
    np.testing.assert_allclose(least_squares(sample, mixture, 0.1)[:, 0, 0], expected, rtol=1e-8)
    Z = np.column_stack([np.ones(N), X_of(sample)])
    wide = (A[:, :, None] * Z[:, None]).reshape(N, -1)
    expected = np.linalg.solve(wide.T @ (w[:, None] * wide) + 0.1 * np.eye(K * (1 + D)), wide.T @ (w * y))
    np.testing.assert_allclose(least_squares(sample, mixture, 0.1, True).flatten(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_two_step_class_weights_are_scikit_learns_on_the_activations(n_classes):
    from sklearn.linear_model import LogisticRegression

    sample = draw(n_classes=n_classes)
    mixture = begin(sample, "none", "diagonal")
    A, w, y = _activations(sample, mixture), sample.weight.numpy(), sample.Y[:, 0].numpy()
    theirs = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10, max_iter=2000).fit(A, y, w)
    W, why = logistic_weights(sample, mixture, n_classes, 0.5)
    # Newton ends where at most 1e-10 of a loss of some 100 is left: under λ = 0.5 weights are off by √(2·1e-8/0.5).
    np.testing.assert_allclose(W.T, theirs.coef_, atol=2e-4)
    assert "decrease" in why or "step" in why


def test_class_shares_are_counts_weighted_by_the_gates():
    sample = draw(n_classes=3)
    mixture = begin(sample, "none")
    R = sample.weight.numpy()[:, None] * _activations(sample, mixture)
    counts = np.array([[R[sample.Y[:, 0].numpy() == c, j].sum() for c in range(3)] for j in range(K)])
    np.testing.assert_allclose(class_shares(sample, mixture, 3), counts / counts.sum(1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("q", [1, 1 + D], ids=["constants", "lines"])
def test_the_slopes_of_gradient_training_are_those_of_automatic_differentiation(q):
    sample = draw()
    mixture = begin(sample, "none", "diagonal")
    rng = np.random.default_rng(0)
    C = mixture.gates.coefficients(mixture.layout)
    W = torch.as_tensor(rng.normal(size=(K, q, 1)))
    psi = mixture.layout.of(torch.as_tensor(X_of(sample).T).contiguous())

    def loss(C, W):
        f = (torch.softmax(C @ psi, 0) * (W[:, :, 0] @ psi[:q])).sum(0)
        return 0.5 * (sample.weight * (f - sample.Y.T).square()).sum()

    value, by_C, by_W = loss_and_slopes(sample, mixture, C, W)
    assert value == pytest.approx(float(loss(C, W)))
    expected = torch.autograd.functional.jacobian(loss, (C, W))
    np.testing.assert_allclose(by_C, expected[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(by_W, expected[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_many_output_weights_are_those_of_newtons_method(n_classes, monkeypatch):
    sample = draw(n_classes=n_classes)
    mixture = fit_em(sample, begin(sample, "none", "diagonal"), 10).mixture
    newton, _ = logistic_weights(sample, mixture, n_classes, 0.1)
    monkeypatch.setattr("mercer.mixture.output_weights.HESSIAN_WORK", 0)
    lbfgs, why = logistic_weights(sample, mixture, n_classes, 0.1)
    assert "L-BFGS" in why
    np.testing.assert_allclose(lbfgs, newton, atol=1e-3)  # its loss is known to 1e-12, so weights to its square root


def test_least_squares_without_a_penalty_takes_the_shortest_of_many_solutions():
    sample = draw()
    mixture = begin(sample, "none", "diagonal", k=1)
    twice = split(mixture, 0)  # the same component twice: activations of one half each
    twice = replace(
        twice,
        gates=make_gates(
            *(
                value.expand(2, *value.shape[1:]).clone()
                for value in (
                    torch.full((2,), 0.5, dtype=torch.float64),
                    mixture.gates.means,
                    mixture.gates.covariances,
                )
            ),
            twice.floor,
        ),
    )
    w = least_squares(sample, twice, 0.0)
    mean = float((sample.Y[:, 0] * sample.weight).sum() / sample.weight.sum())
    np.testing.assert_allclose(w.flatten(), [mean, mean], rtol=1e-9)


def test_every_kind_of_expert_is_tested_here():
    def kinds(kind: type) -> set[type]:
        return {kind}.union(*(kinds(sub) for sub in kind.__subclasses__()))

    shown = {type(make(1, 1)) for make in EXPERTS.values()} | {Owned}
    assert {kind for kind in kinds(Experts) if not isabstract(kind)} == shown
    assert not [kind for kind in shown if kind.__subclasses__()]  # a class is abstract or final
