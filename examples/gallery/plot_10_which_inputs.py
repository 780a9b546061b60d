"""
Which inputs matter
===================

Friedman's function depends on five of ten inputs. The evidence of a Gaussian process gives each input a
length-scale of its own. `ARDSelector` ranks inputs by its inverse, and keeps the inputs that are not far
below the largest.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

from mercer import ARDSelector, SparseGPRegressor
from mercer.plots import plot_relevance

X, y = make_friedman1(400, 10, noise=0.5, random_state=0)
model = SparseGPRegressor(30, kernel="gaussian", ard=True, max_iter=40, random_state=0)
selector = ARDSelector(model).fit(X, y)
print("kept:", [f"x{j}" for j in range(10) if selector.get_support()[j]])

# %%
plot_relevance(selector, names=[f"x{j}" for j in range(10)])
plt.gcf().set_layout_engine("constrained")
plt.show()
