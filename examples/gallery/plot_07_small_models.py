"""
A model small enough for a microcontroller
==========================================

Greedy selection adds one basis vector after another, each time the one that helps most. One fit gives the errors of
all sizes, so you can choose the smallest model that is good enough. Moving the basis vectors afterwards (`refine`)
lowers the error of a given size further.
"""

import matplotlib.pyplot as plt
import numpy as np

import mercer
from mercer import GreedyKernelRegressor
from mercer.datasets import make_smooth_regression

X, y = make_smooth_regression(2000, 4, noise=0.02, random_state=0)
X_train, y_train, X_test, y_test = X[:1200], y[:1200], X[1200:], y[1200:]
sizes = [2, 5, 10, 20, 40, 60, 80, 100]


def unexplained(predicted):
    return 100 * np.mean((predicted - y_test) ** 2) / y_test.var()


path = GreedyKernelRegressor(100, kernel="gaussian", tuning_rows=200, random_state=0).fit(X_train, y_train)
chance = GreedyKernelRegressor(100, kernel=path.kernel_, criterion="random", random_state=0).fit(X_train, y_train)
moved = GreedyKernelRegressor(20, kernel=path.kernel_, refine=True, random_state=0).fit(X_train, y_train)
small = [unexplained(p) for p in path.path_predict(X_test, sizes)]

# %%
# The model of twenty basis vectors as an ONNX graph in single precision, which runs without Python.

graph = mercer.to_onnx(moved, dtype="float32")
print(f"{len(graph.SerializeToString())} bytes of ONNX for {len(moved.basis_)} basis vectors")

# %%
# Error against size, from one fit.

plt.figure(figsize=(6, 3.6), layout="constrained")
plt.loglog(sizes, small, "o-", label="chosen greedily")
plt.loglog(sizes, [unexplained(p) for p in chance.path_predict(X_test, sizes)], "s-", label="chosen at random")
plt.plot(20, unexplained(moved.predict(X_test)), "D", ms=9, label="20, moved (refine=True)")
plt.xlabel("basis vectors")
plt.ylabel("variance not explained in %")
plt.legend(frameon=False)
plt.show()
