"""
Inverse dynamics of a robot arm
===============================

Which torques make an arm of two links move as planned? The model predicts both torques from the angles, velocities
and accelerations of both joints. The two outputs share kernel and basis vectors.
"""

import matplotlib.pyplot as plt
import numpy as np

from mercer import KernelBoostingRegressor

rng = np.random.default_rng(0)
angle, speed, push = rng.uniform(-np.pi, np.pi, (4000, 2)), rng.normal(0, 2, (4000, 2)), rng.normal(0, 4, (4000, 2))
c2, s2 = np.cos(angle[:, 1]), np.sin(angle[:, 1])
gravity = 9.81 * np.cos(angle.sum(1))
first = (3 + 2 * c2) * push[:, 0] + (1 + c2) * push[:, 1] - s2 * (2 * speed[:, 0] + speed[:, 1]) * speed[:, 1]
torque = np.column_stack(
    [
        first + 2 * 9.81 * np.cos(angle[:, 0]) + gravity,
        (1 + c2) * push[:, 0] + push[:, 1] + s2 * speed[:, 0] ** 2 + gravity,
    ]
) + rng.normal(0, 0.3, (4000, 2))
X = np.column_stack([np.sin(angle), np.cos(angle), speed, push])

model = KernelBoostingRegressor(kernel="gaussian", tuning_rows=300, random_state=0).fit(X[:3000], torque[:3000])
error = torque[3000:] - model.predict(X[3000:])
unexplained = error.var(0) / torque[3000:].var(0)
print("variance not explained, by joint:", np.round(100 * unexplained, 2), "%")
print(model.stop_reason_)

# %%
# Errors of both joints have the size of the noise, 0.3.

plt.figure(figsize=(6, 3.2), layout="constrained")
for j in range(2):
    plt.hist(error[:, j], np.linspace(-3, 3, 61), histtype="step", label=f"joint {j + 1}")
plt.xlabel("torque, measured less predicted")
plt.legend(frameon=False)
plt.show()
