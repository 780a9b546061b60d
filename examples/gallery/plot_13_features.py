"""
Better landmarks for a linear model
===================================

`GreedyNystroem` replaces scikit-learn's `Nystroem`: kernel features of a few landmarks for any linear model. Landmarks
that are chosen with the targets reach the same error with fewer of them than random landmarks.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import GreedyNystroem
from mercer.datasets import make_smooth_regression
from mercer.kernels import Gaussian

X, y = make_smooth_regression(4000, 3, noise=0.02, random_state=0)
sizes = [10, 20, 40, 80, 160]
length = 1.5
errors = {"GreedyNystroem": [], "Nystroem": []}
for m in sizes:
    makers = {
        "GreedyNystroem": GreedyNystroem(m, kernel=Gaussian(length), random_state=0),
        "Nystroem": Nystroem(n_components=m, gamma=0.5 / length**2, random_state=0),
    }
    for name, features in makers.items():
        model = make_pipeline(StandardScaler(), features, RidgeCV(np.logspace(-8, 0, 5))).fit(X[:3000], y[:3000])
        errors[name].append(100 * (1 - model.score(X[3000:], y[3000:])))

plt.figure(figsize=(6, 3.4), layout="constrained")
for name, found in errors.items():
    plt.loglog(sizes, found, "o-", label=name)
plt.xlabel("landmarks")
plt.ylabel("variance not explained in %")
plt.legend(frameon=False)
plt.show()
