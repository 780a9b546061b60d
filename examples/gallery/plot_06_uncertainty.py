"""
Uncertainty along one input
===========================

A Gaussian process predicts a mean and a standard deviation. Inside the two groups of measurements the band is as wide
as the noise; between and outside them it is wider. The band of SR, the oldest sparse approximation, is narrow far from
the data, so use another one.
"""

import matplotlib.pyplot as plt
import numpy as np

from mercer import SparseGPRegressor
from mercer.plots import plot_uncertainty

rng = np.random.default_rng(0)
X = np.r_[rng.uniform(-4, -1, 80), rng.uniform(1.5, 4, 80)][:, None]
y = np.sin(1.5 * X[:, 0]) + 0.15 * rng.normal(size=160)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, approximation in zip(axes, ("spgp", "sr"), strict=True):
    model = SparseGPRegressor(12, kernel="gaussian", approximation=approximation, random_state=0).fit(X, y)
    plot_uncertainty(model, X, y, np.linspace(-6, 6, 200), ax=ax)
    ax.set_title(f"{approximation}: log evidence {model.log_marginal_likelihood_:.1f}")
plt.show()
