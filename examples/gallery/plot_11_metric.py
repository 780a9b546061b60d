"""
A metric for nearest neighbours
===============================

Inputs that do not matter spoil the distances of nearest neighbours. `GradientMetric` finds the directions in which the
target changes from the gradients of a kernel model. It maps the inputs so that distances in these directions count.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import GradientMetric

rng = np.random.default_rng(0)
noise_inputs = [0, 4, 12]
plain, mapped = [], []
for n in noise_inputs:
    X = rng.normal(size=(600, 2 + n))
    y = np.sin(2 * (X[:, 0] + X[:, 1])) + 0.1 * rng.normal(size=600)
    for found, first in ((plain, StandardScaler()), (mapped, GradientMetric(time_budget=1.5, random_state=0))):
        model = make_pipeline(first, KNeighborsRegressor(8)).fit(X[:400], y[:400])
        found.append(model.score(X[400:], y[400:]))

# %%
plt.figure(figsize=(6, 3.4), layout="constrained")
plt.plot(noise_inputs, mapped, "o-", label="GradientMetric + nearest neighbours")
plt.plot(noise_inputs, plain, "s-", label="StandardScaler + nearest neighbours")
plt.xlabel("inputs that do not matter")
plt.ylabel("R² of test rows")
plt.ylim(-0.1, 1)
plt.legend(frameon=False)
plt.show()
