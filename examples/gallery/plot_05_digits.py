"""
Digits with probabilities
=========================

Ten classes from 64 inputs. The probabilities are calibrated on held-out rows: about nine in ten predictions with a
probability of 90 % are right.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mercer import KernelBoostingClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=500, random_state=0)
model = KernelBoostingClassifier(time_budget=6, random_state=0).fit(X_train, y_train)
p = model.predict_proba(X_test)
wrong = p.argmax(1) != y_test
print(f"{wrong.sum()} of {len(y_test)} wrong")
print(f"mean probability of the predicted class: {p.max(1).mean():.3f}, right: {1 - wrong.mean():.3f}")

# %%
# The test digits with the lowest probability of the predicted class.

figure, axes = plt.subplots(2, 6, figsize=(8, 3.2), layout="constrained")
for ax, i in zip(axes.flat, np.argsort(p.max(1)), strict=False):
    ax.imshow(X_test[i].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{p[i].argmax()}: {p[i].max():.0%} (is {y_test[i]})", fontsize=8)
    ax.set_axis_off()
plt.show()
