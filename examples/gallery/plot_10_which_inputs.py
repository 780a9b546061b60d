"""
Which inputs matter
===================

Two inputs decide the class, two are noisy copies of them and two say nothing. The evidence of a Gaussian process gives each
input a length-scale of its own; its inverse is the relevance, and `ARDSelector` keeps those that several models vote for.
"""

import matplotlib.pyplot as plt

from mercer import ARDSelector
from mercer.datasets import make_redundant_gaussians
from mercer.plots.gp import plot_relevance

X, y = make_redundant_gaussians(300, random_state=0)
selector = ARDSelector(random_state=0).fit(X, y)
print("kept:", selector.get_support())

# %%
plot_relevance(selector, names=[f"x{j + 1}" for j in range(X.shape[1])])
plt.gcf().set_layout_engine("constrained")
plt.show()
