"""What every loss promises: its slope and curvature are those of its value, and it is convex."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_close

from mercer.losses import (
    Absolute,
    Gamma,
    Huber,
    Logistic,
    Loss,
    Pinball,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
    Tweedie,
)

LOSSES = [Squared(), Logistic(), SquaredHinge(), Pinball(0.2), Pinball(0.9), Huber(0.7), Huber(1.93), Absolute()]
MARGIN_LOSSES = [Logistic(), SquaredHinge()]
STEP = 1e-4
over_losses = pytest.mark.parametrize("loss", LOSSES, ids=repr)
over_margin_losses = pytest.mark.parametrize("loss", MARGIN_LOSSES, ids=repr)
few = settings(max_examples=50, deadline=None, derandomize=True)
outputs = st.floats(-15, 15)
losses = st.sampled_from(LOSSES)
signs = st.sampled_from([-1.0, 1.0])


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Targets ±1 against outputs on both sides of the hinge's kink, n × 2, none within STEP of it."""
    f = torch.linspace(-6, 6, 50, dtype=torch.float64)
    y = torch.ones(50, 2, dtype=torch.float64)
    y[::2] = -1
    return y, torch.stack([f, -f.flip(0) / 2], 1)


@over_losses
def test_the_residual_is_minus_the_slope_of_the_value(loss):
    y, f = table()
    slope = (loss.value(y, f + STEP) - loss.value(y, f - STEP)) / (2 * STEP)
    # Third derivatives are below 1, values below 200: truncation STEP²/6, rounding 200 eps / STEP.
    assert torch.allclose(loss.residual(y, f), -slope, rtol=0, atol=5e-9)


@over_losses
def test_the_curvature_is_the_slope_of_the_slope(loss):
    y, f = table()
    slope = (loss.residual(y, f - STEP) - loss.residual(y, f + STEP)) / (2 * STEP)
    assert torch.allclose(loss.curvature(y, f), slope, rtol=0, atol=5e-9)


@over_losses
def test_the_gradient_by_autograd_agrees(loss):
    y, f = table()
    f.requires_grad_()
    loss.value(y, f).sum().backward()
    assert torch.allclose(-f.grad, loss.residual(y, f.detach()), rtol=1e-14, atol=1e-14)


@given(loss=losses, y=signs, a=outputs, b=outputs, t=st.floats(0, 1))
@few
def test_a_loss_lies_below_its_chords(loss, y, a, b, t):
    y, a, b = (torch.tensor([v], dtype=torch.float64) for v in (y, a, b))
    middle = loss.value(y, t * a + (1 - t) * b)
    chord = t * loss.value(y, a) + (1 - t) * loss.value(y, b)
    assert middle <= chord + 1e-12  # values are below 256: a few units of their last place


@given(loss=losses, y=signs, a=outputs, b=outputs)
@few
def test_a_loss_lies_above_its_tangents(loss, y, a, b):
    y, a, b = (torch.tensor([v], dtype=torch.float64) for v in (y, a, b))
    tangent = loss.value(y, a) - loss.residual(y, a) * (b - a)
    assert loss.value(y, b) >= tangent - 1e-12


@over_losses
def test_values_and_curvatures_are_never_negative(loss):
    y, f = table()
    assert (loss.value(y, f) >= 0).all()
    assert (loss.curvature(y, f) >= 0).all()


@over_margin_losses
def test_the_residual_of_a_margin_loss_points_to_the_class(loss):
    y, f = table()
    residual = loss.residual(y, f)
    assert (residual * y >= 0).all()
    assert (residual * y > 0)[y * f < 1].all()


def test_the_residual_of_the_squared_loss_is_what_is_left():
    y, f = table()
    assert torch.allclose(f + Squared().residual(y, f), y, rtol=0, atol=2e-15)  # two roundings of at most 7


@over_margin_losses
def test_a_margin_loss_falls_as_the_margin_grows(loss):
    f = torch.linspace(-8, 8, 40, dtype=torch.float64)
    values = loss.value(torch.ones_like(f), f)
    assert (values.diff() <= 0).all()
    assert torch.allclose(values, loss.value(-torch.ones_like(f), -f), rtol=1e-14)


def test_the_hinge_is_flat_beyond_the_margin():
    y, f = torch.tensor([1.0, -1.0]), torch.tensor([1.5, -3.0])
    hinge = SquaredHinge()
    assert not any(part(y, f).any() for part in (hinge.value, hinge.residual, hinge.curvature))


def test_only_the_squared_loss_is_a_quadratic():
    assert [loss.quadratic for loss in LOSSES] == [True] + [False] * (len(LOSSES) - 1)
    y, f = table()
    newton = f + Squared().residual(y, f) / Squared().curvature(y, f)
    assert torch.allclose(newton, y, atol=1e-14)


@over_losses
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_outputs_far_away_stay_finite(loss, dtype):
    f = torch.tensor([-1e6, -50.0, 0.0, 50.0, 1e6], dtype=dtype)
    for y in (torch.ones_like(f), -torch.ones_like(f)):
        for part in (loss.value, loss.residual, loss.curvature):
            assert part(y, f).isfinite().all()
            assert part(y, f).dtype == dtype


@pytest.mark.parametrize("loss", [Poisson(), Gamma(), Tweedie(1.0), Tweedie(1.4), Tweedie(2.0)], ids=repr)
def test_losses_of_positive_means_agree_with_autograd_and_stay_finite(loss):
    f = torch.linspace(-6, 6, 50, dtype=torch.float64, requires_grad=True)
    y = torch.linspace(0.01, 20, 50, dtype=torch.float64).flip(0)
    value = loss.value(y, f)
    (slope,) = torch.autograd.grad(value.sum(), f, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), f)
    assert_close(loss.residual(y, f), -slope, rtol=1e-12, atol=1e-12)
    assert_close(loss.curvature(y, f), curvature, rtol=1e-12, atol=1e-12)
    assert_close(loss.value(y, y.log()), torch.zeros_like(y), rtol=0, atol=1e-13)
    assert bool((value >= 0).all() and (curvature > 0).all())
    least = torch.tensor([0.0 if loss.variance_power() < 2 else 1e-3, 1.0, 1e3])
    far = torch.tensor([[-1e6], [-35.0], [0.0], [35.0], [1e6]])
    for part in (loss.value, loss.residual, loss.curvature):
        assert part(least, far).isfinite().all()


def test_the_logistic_loss_is_the_negative_log_likelihood():
    f = np.linspace(-60, 60, 101)
    ours = Logistic().value(torch.ones(101, dtype=torch.float64), torch.from_numpy(f)).numpy()
    # both take an exponential and a log1p of it, each good to a few units of the last place
    np.testing.assert_allclose(ours, np.logaddexp(0, -f), rtol=1e-14)


@pytest.mark.parametrize("loss", [*LOSSES, Softmax()], ids=repr)
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4)], ids=["rows by classes", "models by classes by rows"])
def test_the_hessian_is_the_slope_of_the_residual_and_its_diagonal_the_curvature(loss, shape):
    draw = torch.Generator().manual_seed(0)
    f = 2 * torch.randn(*shape, generator=draw, dtype=torch.float64)
    label = torch.randint(0, 3, (shape[0], 1, *shape[2:]), generator=draw)
    y = torch.full_like(f, -1.0).scatter(1, label, 1.0)
    H = loss.hessian(y, f)
    for c in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[c] = STEP
        step = step.reshape(1, 3, *[1] * (f.ndim - 2))
        slope = (loss.residual(y, f - step) - loss.residual(y, f + step)) / (2 * STEP)
        assert torch.allclose(H[:, :, c], slope, rtol=0, atol=5e-9)  # as above: truncation and rounding
    assert_close(H.diagonal(dim1=1, dim2=2).movedim(-1, 1), loss.curvature(y, f), rtol=1e-12, atol=1e-15)


def test_two_classes_of_a_softmax_are_a_logistic_of_the_difference():
    f = torch.linspace(-30, 30, 61, dtype=torch.float64)[:, None]
    y, both = torch.ones_like(f), torch.cat([f / 2, -f / 2], 1)
    codes = torch.tensor([1.0, -1.0], dtype=torch.float64).expand(61, 2)
    assert_close(Softmax().value(codes, both), Logistic().value(y, f), rtol=1e-12, atol=1e-14)
    assert_close(Softmax().residual(codes, both)[:, :1], Logistic().residual(y, f), rtol=1e-12, atol=1e-15)
    across = Softmax().hessian(codes, both)
    assert_close(across[:, :1, 0], Logistic().curvature(y, f), rtol=1e-12, atol=1e-15)
    assert_close(across[:, 0, 1], -across[:, 0, 0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "kind"), [("squared", Squared), ("logistic", Logistic), ("squared-hinge", SquaredHinge)]
)
def test_a_loss_is_found_by_its_short_name(name, kind):
    assert isinstance(Loss.resolve(name, "loss"), kind)
    given = kind()
    assert Loss.resolve(given, "loss") is given


def test_an_unknown_loss_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"loss must be one of \['absolute', .*\] or a Loss object, got 'hinge'"):
        Loss.resolve("hinge", "loss")


def test_a_loss_without_a_residual_is_refused_when_it_is_made():
    class Halved(Loss):
        def value(self, y, f):
            return (y - f).square() / 4

        def curvature(self, y, f):
            return torch.full_like(f, 0.5)

    with pytest.raises(TypeError, match=r"abstract .*residual"):
        Halved()


def test_the_best_constant_under_the_pinball_loss_is_the_quantile():
    """Up to half of the parabola's width on either side, 0.05."""
    y = torch.as_tensor(np.random.default_rng(0).exponential(size=4000))
    grid = torch.linspace(0, 3, 601, dtype=torch.float64)
    for level in (0.1, 0.5, 0.9):
        best = grid[Pinball(level).value(y[:, None], grid).sum(0).argmin()]
        assert float(best) == pytest.approx(float(y.quantile(level)), abs=0.05)


def test_a_pinball_level_out_of_range_gets_a_sentence():
    with pytest.raises(ValueError, match="quantile must be a number above 0 and below 1, got 1"):
        Pinball(1).value(torch.zeros(1), torch.zeros(1))
