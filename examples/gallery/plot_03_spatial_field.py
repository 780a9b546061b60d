"""
A field on a map, and where it is not known
===========================================

Stations measure a field at scattered places, none of them in the north-east. A sparse Gaussian process predicts the
field everywhere, with a standard deviation that is small among the stations and as large as the field itself where
there are none.
"""

import matplotlib.pyplot as plt
import numpy as np

from mercer import SparseGPRegressor

rng = np.random.default_rng(1)
places = rng.uniform(0, 10, (900, 2))
places = places[~((places[:, 0] > 6) & (places[:, 1] > 6))]


def field(at):
    return np.sin(at[:, 0]) * np.cos(0.7 * at[:, 1]) + 0.1 * at[:, 0]


measured = field(places) + 0.1 * rng.normal(size=len(places))
model = SparseGPRegressor(60, kernel="matern52", max_iter=30, random_state=0).fit(places, measured)
axis = np.linspace(0, 10, 60)
grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
mean, std = model.predict(grid, return_std=True, include_noise=False)
print(f"noise: {np.sqrt(model.predictive_noise_):.3f} found, 0.1 true")

# %%
# The white triangles are the inducing inputs. The model keeps them instead of the stations.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for ax, values, title in zip(axes, (mean, std), ("field", "standard deviation"), strict=True):
    image = ax.pcolormesh(axis, axis, values.reshape(60, 60), cmap="viridis")
    ax.plot(*places.T, ".", color="black", ms=1)
    figure.colorbar(image, ax=ax)
    ax.set_title(title)
axes[1].plot(*model.basis_.T, "^", color="white", ms=4)
plt.setp(axes, xlim=(0, 10), ylim=(0, 10))
plt.show()
