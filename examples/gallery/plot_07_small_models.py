"""
A model small enough for a microcontroller
==========================================

Greedy selection takes basis vectors one by one, those that help most first. One fit gives the whole path from
size to error, so that the smallest model that is good enough can be read off; moving the basis vectors
afterwards (`refine`) makes a given size better still.
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
# As an ONNX graph in single precision the model of twenty basis vectors needs no Python any more.

graph = mercer.to_onnx(moved, dtype="float32")
print(f"{len(graph.SerializeToString())} bytes of ONNX for {len(moved.basis_)} basis vectors")

# %%
# The path of one fit, from size to error.

plt.figure(figsize=(6, 3.6), layout="constrained")
plt.loglog(sizes, small, "o-", label="chosen greedily")
plt.loglog(sizes, [unexplained(p) for p in chance.path_predict(X_test, sizes)], "s-", label="chosen at random")
plt.plot(20, unexplained(moved.predict(X_test)), "D", ms=9, label="20, moved (refine=True)")
plt.xlabel("basis vectors")
plt.ylabel("variance not explained in %")
plt.legend(frameon=False)
plt.show()
