"""Artificial regression problems the papers define by a formula, and a fast one for large-scale runs.

Every generator draws the parameters of its function first, then the inputs, then the noise.
So the same `random_state` with ``noise=0`` returns the clean targets of the same rows, and
asking for more rows keeps the function.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import check_random_state

from mercer.parts import require

Sample = tuple[np.ndarray, np.ndarray]


def make_sinc(
    n_samples: int = 100, *, interval: tuple[float, float] = (-10.0, 10.0), noise: float = 0.1, random_state: Any = None
) -> Sample:
    r"""Equally spaced samples of :math:`y = \sin(x)/x + \varepsilon` (Greedy02, section 5, figure 4).

    `noise` is the standard deviation of :math:`\varepsilon`. The paper writes N(0, 0.1) and not
    which of the two 0.1 is; its test error of 0.0315 with 8 kernels fits a deviation, for which
    estimating 8 weights from 100 rows costs :math:`0.1\sqrt{8/100} = 0.028`, and rules out a
    variance, which would cost 0.089. The interval is not printed either: ours is the usual one.

    >>> X, y = make_sinc(5, noise=0.0)
    >>> X.ravel().tolist()
    [-10.0, -5.0, 0.0, 5.0, 10.0]
    >>> y.round(3).tolist()
    [-0.054, -0.192, 1.0, -0.192, -0.054]
    """
    require(noise >= 0, "noise", "at least 0", noise)
    x = np.linspace(*interval, n_samples)
    return x[:, None], np.sinc(x / np.pi) + _gaussian_noise(n_samples, noise, random_state)


def make_sin2(n_samples: int = 200, *, snr: float = 2.0, random_state: Any = None) -> Sample:
    r"""Draws of :math:`y = \sin^2(2\pi x) + \varepsilon`, x uniform on [0, 1] (Thesis09, section 2.5.1).

    `snr` is the variance of the signal, exactly 1/8, over that of the noise; infinity gives clean
    targets. The thesis sets it to 2 and does not say whether of variances or of deviations.

    >>> X, y = make_sin2(1000, snr=float("inf"), random_state=0)
    >>> X.shape, bool(np.allclose(y, np.sin(2 * np.pi * X[:, 0]) ** 2))
    ((1000, 1), True)
    """
    require(snr > 0, "snr", "positive", snr)
    state = check_random_state(random_state)
    x = state.uniform(size=n_samples)
    return x[:, None], np.sin(2 * np.pi * x) ** 2 + _gaussian_noise(n_samples, (0.125 / snr) ** 0.5, state)


def make_random_function(
    n_samples: int = 2000,
    n_features: int = 10,
    *,
    n_terms: int = 20,
    inputs: str = "uniform",
    weight_range: tuple[float, float] = (0.0, 1.0),
    inverse_widths: tuple[float, float] = (0.1, 2.0),
    mean_extra_inputs: float | None = None,
    noise: float = 0.1,
    signal_to_noise: float | None = None,
    random_state: Any = None,
) -> Sample:
    r"""A random sum of Gaussians (Friedman 2001, section 6.1; Greedy02, section 6.1).

    .. math::
        y = \sum_{l=1}^{20} a_l \exp\{-(z_l - \mu_l)^\top \Sigma_l^{-1} (z_l - \mu_l)\} + \varepsilon,
        \qquad \Sigma_l^{-1} = \tfrac12 U_l\, \mathrm{diag}(d_l)\, U_l^\top,

    with `U_l` a random rotation, each :math:`\sqrt{d}` uniform over `inverse_widths`, each weight
    uniform over `weight_range`, and each centre drawn as a row of X is.

    The defaults are Greedy02's: inputs and centres uniform in the unit cube, weights in [0, 1],
    every term sees every input. That paper leaves open how its "random SPD matrix" and its
    inputs are drawn and how large the noise is; we take Friedman's recipe for the first, the
    unit cube for the second, and 0.1, the root of its regularisation, for the deviation `noise`.

    Friedman's own form has normal inputs, signed weights, terms of few inputs, and as much noise
    as signal; the call below is his. A term then sees :math:`\min(\lfloor 1.5 + r\rfloor, D)` random
    inputs, r exponential with mean `mean_extra_inputs`. `signal_to_noise`, if given, replaces
    `noise`: it is the mean absolute deviation of the signal from its median over the mean of
    :math:`|\varepsilon|`.

    >>> X, y = make_random_function(500, inputs="normal", weight_range=(-1, 1), mean_extra_inputs=2.0,
    ...                             signal_to_noise=1.0, random_state=0)
    >>> X.shape, y.shape
    ((500, 10), (500,))
    """
    require(inputs in ("uniform", "normal"), "inputs", "'uniform' or 'normal'", inputs)
    require(noise >= 0, "noise", "at least 0", noise)
    state = check_random_state(random_state)
    draw = state.uniform if inputs == "uniform" else state.normal
    terms = []
    for _ in range(n_terms):
        size = n_features
        if mean_extra_inputs is not None:
            size = min(int(1.5 + state.exponential(mean_extra_inputs)), n_features)
        seen = state.permutation(n_features)[:size]
        root = _random_rotation(size, state) * (state.uniform(*inverse_widths, size=size) / np.sqrt(2))
        terms.append((state.uniform(*weight_range), seen, draw(size=size), root))
    X = draw(size=(n_samples, n_features))
    y = np.zeros(n_samples)
    for a, seen, mu, root in terms:
        y += a * np.exp(-np.square((X[:, seen] - mu) @ root).sum(1))
    if signal_to_noise is not None:
        # A normal variable of deviation s has E|e| = s sqrt(2/pi).
        noise = np.sqrt(np.pi / 2) * np.abs(y - np.median(y)).mean() / signal_to_noise
    return X, y + _gaussian_noise(n_samples, noise, state)


#: Where the arm of `make_smooth_regression` reaches for; off every axis, so that all joints matter.
ARM_TARGET = (0.3, 0.2, 0.4)


def make_smooth_regression(
    n_rows: int = 10_000,
    n_features: int = 8,
    noise: float = 0.0,
    *,
    max_angle: float = np.pi / 2,
    dtype: DTypeLike = np.float64,
    block_rows: int = 65_536,
    random_state: Any = None,
) -> Sample:
    r"""Distance of a robot arm's tip from a target, as in the KIN data sets; a million rows within a second.

    The arm has `n_features` links of equal length, 1 in all, and as many revolute joints, which
    turn about the z and the y axis by turns. Row n holds the joint angles, uniform on
    [-`max_angle`, `max_angle`], and

    .. math:: y = \| R_z(\theta_1)(\ell e_x + R_y(\theta_2)(\ell e_x + \dots)) - t \| + \varepsilon,

    with `noise` the standard deviation of :math:`\varepsilon`. The function is smooth wherever the
    tip is off the target; a wider `max_angle` bends it more. KIN40K (Boost10, section IV) is a
    simulation of this kind, whose links and target are not published; this is not that data set.
    Besides X and y the memory used is a few columns of `block_rows` rows, whose number does not
    change the result.

    >>> X, y = make_smooth_regression(1000, random_state=0)
    >>> X.shape, bool(0 <= y.min() <= y.max() <= 1 + np.linalg.norm(ARM_TARGET))
    ((1000, 8), True)
    """
    require(noise >= 0, "noise", "at least 0", noise)
    state = check_random_state(random_state)
    X, y = np.empty((n_rows, n_features), dtype), np.empty(n_rows, dtype)
    blocks = [slice(start, start + block_rows) for start in range(0, n_rows, block_rows)]
    for rows in blocks:
        X[rows] = state.uniform(-max_angle, max_angle, size=X[rows].shape)
        y[rows] = _distance_of_tip(X[rows])
    for rows in blocks:  # after all inputs, so that the noise does not change them
        y[rows] += _gaussian_noise(len(y[rows]), noise, state)
    return X, y


def _distance_of_tip(angles: np.ndarray) -> np.ndarray:
    """From the last link to the first: extend along x by one link, then turn by the joint before it."""
    n_links = angles.shape[1]
    x, y, z = np.zeros((3, len(angles)), angles.dtype)
    for j in reversed(range(n_links)):
        x += 1 / n_links
        cos, sin = np.cos(angles[:, j]), np.sin(angles[:, j])
        if j % 2 == 0:
            x, y = cos * x - sin * y, sin * x + cos * y
        else:
            x, z = cos * x + sin * z, cos * z - sin * x
    return np.sqrt((x - ARM_TARGET[0]) ** 2 + (y - ARM_TARGET[1]) ** 2 + (z - ARM_TARGET[2]) ** 2)


def _gaussian_noise(n: int, deviation: float, random_state: Any) -> np.ndarray:
    return deviation * check_random_state(random_state).normal(size=n)


def _random_rotation(n: int, state: np.random.RandomState) -> np.ndarray:
    """Uniform over the orthogonal matrices: the Q of a normal matrix, with the signs of R's diagonal."""
    Q, R = np.linalg.qr(state.normal(size=(n, n)))
    return Q * np.sign(np.diag(R))
