"""
A few local lines that you can read
===================================

A mixture of linear experts divides the inputs into regions and fits a line in each. Cross-validation finds the number
of regions. The result is a table of centres, slopes and noise.
"""

import matplotlib.pyplot as plt
import numpy as np

from mercer import ENRBFRegressor
from mercer.plots import plot_gates, plot_slopes

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 500)
y = np.where(x < 3, 2 * x, np.where(x < 7, 6 - 1.5 * (x - 3), 3 * (x - 7))) + rng.normal(0, np.where(x < 7, 0.2, 0.8))
model = ENRBFRegressor("auto", training="em", max_components=6, random_state=0).fit(x[:, None], y)
order = np.argsort(model.means_[:, 0])
print("  centre   slope   noise")
for j in order:
    print(f"{model.means_[j, 0]:8.2f} {model.coef_[j, 0]:7.2f} {np.sqrt(model.noise_variances_[j]):7.2f}")

# %%
figure, (above, below) = plt.subplots(2, 1, figsize=(6.5, 5), layout="constrained", sharex=True)
plot_slopes(model, x[:, None], y, ax=above)
plot_gates(model, x[:, None], ax=below)
plt.show()
