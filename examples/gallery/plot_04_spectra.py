"""
Concentrations from spectra
===========================

Near-infrared spectra have many correlated inputs. The absorption is not linear in the concentrations, because the
detector saturates. A kernel model learns this from 300 samples; a linear calibration cannot.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from mercer import KernelBoostingRegressor

rng = np.random.default_rng(0)
wave = np.linspace(1100, 2500, 120)
peaks = np.stack(
    [np.exp(-(((wave - at) / width) ** 2)) for at, width in ((1450, 90), (1720, 60), (1940, 80), (2300, 70))]
)
share = rng.dirichlet(np.ones(4), 600)
absorbed = 3.0 * share @ peaks + 0.15 * rng.normal(size=(600, 1)) * (wave - 1800) / 700
spectra = 1 - np.exp(-absorbed) + 0.003 * rng.normal(size=absorbed.shape)
water = 100 * share[:, 2]

kernel = make_pipeline(PCA(8, whiten=True), KernelBoostingRegressor(time_budget=6, random_state=0))
linear = PLSRegression(8)
errors = {}
for name, model in {"kernel model on 8 components": kernel, "PLS, 8 components": linear}.items():
    model.fit(spectra[:300], water[:300])
    errors[name] = water[300:] - model.predict(spectra[300:]).ravel()
    print(f"{name:30s} RMSE {np.sqrt(np.mean(errors[name] ** 2)):.2f} % water")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(wave, spectra[:25].T, lw=0.6)
left.set(xlabel="wavelength in nm", ylabel="signal")
for name, error in errors.items():
    right.plot(water[300:], error, ".", ms=3, label=name)
right.set(xlabel="water in %", ylabel="error")
right.legend(frameon=False)
plt.show()
