"""
A surrogate of a simulator
==========================

The borehole function is the flow of water between two aquifers, from eight inputs of very different units.
Five hundred runs of the simulator are enough for a model that predicts in microseconds and shows which inputs
matter. No setting is chosen by hand.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from mercer import KernelBoostingRegressor

NAMES = ["r_w", "r", "T_u", "H_u", "T_l", "H_l", "L", "K_w"]
LOW = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
HIGH = np.array([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])


def borehole(X):
    r_w, r, T_u, H_u, T_l, H_l, L, K_w = X.T
    turns = np.log(r / r_w)
    return 2 * np.pi * T_u * (H_u - H_l) / (turns * (1 + 2 * L * T_u / (turns * r_w**2 * K_w) + T_u / T_l))


rng = np.random.default_rng(0)
X = LOW + (HIGH - LOW) * rng.uniform(size=(2500, 8))
y = borehole(X)
X_train, y_train, X_test, y_test = X[:500], y[:500], X[500:], y[500:]

model = KernelBoostingRegressor(time_budget=8, random_state=0).fit(X_train, y_train)
trees = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
for name, one in {"kernel model": model, "trees": trees}.items():
    print(f"{name:13s} RMSE {np.sqrt(np.mean((one.predict(X_test) - y_test) ** 2)):.3f} of {y_test.std():.1f}")

# %%
# The relevance of each input: the radius of the well matters most, and three of the eight inputs hardly matter.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(y_test, model.predict(X_test), ".", ms=2, label="kernel model")
left.plot(y_test, trees.predict(X_test), ".", ms=2, label="trees")
left.axline((0, 0), slope=1, color="0.5", lw=1)
left.set(xlabel="simulator", ylabel="surrogate")
left.legend(frameon=False, markerscale=4)
order = np.argsort(model.relevance_)
right.barh([NAMES[j] for j in order], model.relevance_[order])
right.set_xlabel("relevance")
plt.show()
