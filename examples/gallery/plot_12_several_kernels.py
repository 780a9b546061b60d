"""
Several kernels at once
=======================

Ripley's two classes; the best possible rule is wrong in 8.9 % of the cases. Three kernels have coordinates from a few
random rows each and are trained to agree. An ensemble of such models votes.
"""

import matplotlib.pyplot as plt

from mercer import GreedyKernelClassifier, RPEMEKLClassifier
from mercer.datasets import RIPLEY, make_ripley
from mercer.plots import plot_boundary

X, y = make_ripley(250, random_state=0)
X_test, y_test = make_ripley(4000, random_state=1)
models = {
    "three kernels": RPEMEKLClassifier("paper", 1.0, 1.0, subset_size=(0.1, 0.3), random_state=0),
    "greedy selection": GreedyKernelClassifier(stopping="mdl", random_state=0),
}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    error = 1 - model.fit(X, y).score(X_test, y_test)
    plot_boundary(model, X, y, RIPLEY.posterior, ax=ax)
    ax.set_title(f"{name}: {error:.1%} wrong")
plt.show()
