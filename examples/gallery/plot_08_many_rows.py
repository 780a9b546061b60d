"""
A million rows in a given time
==============================

`time_budget` limits the seconds of a fit, including model selection. Rows are read in blocks, so no kernel matrix of a
million rows has to fit into memory.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from mercer import KernelBoostingRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (1_002_000, 3)).astype(np.float32)
y = np.sin(4 * X[:, 0] + 2 * X[:, 1]) * np.exp(-(X[:, 2] ** 2)) + 0.1 * rng.normal(size=len(X))
X_train, y_train, X_test, y_test = X[:1_000_000], y[:1_000_000], X[1_000_000:], y[1_000_000:]

began = time.perf_counter()
model = KernelBoostingRegressor(kernel="matern52", tuning_rows=300, time_budget=20, random_state=0)
model.fit(X_train, y_train)
seconds = time.perf_counter() - began
error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
print(f"{seconds:.1f} s, RMSE {error:.4f} (noise 0.1), {len(model.basis_)} basis vectors")
print(model.stop_reason_)

# %%
stages = [np.sqrt(np.mean((p - y_test) ** 2)) for p in model.staged_predict(X_test)]
plt.figure(figsize=(6, 3.2), layout="constrained")
plt.plot(model.history_["seconds"][: len(stages)] + model.tuning_seconds_, stages, "o-", label="learner by learner")
plt.axhline(0.1, color="0.5", ls="--", label="noise")
plt.xlabel("seconds, tuning included")
plt.ylabel("RMSE of test rows")
plt.legend(frameon=False)
plt.show()
