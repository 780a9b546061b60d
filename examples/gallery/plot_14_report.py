"""
From a fitted model to a page
=============================

`mercer.report` compares a model with the mean, a linear model and gradient-boosted trees. It shows where the model is
wrong, whether its intervals cover, and how far the test rows are from the training rows. The page is one HTML file;
the same numbers are available as a dictionary.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import mercer

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
model = mercer.SparseGPRegressor(30, kernel="gaussian", max_iter=30, random_state=0).fit(X_train, y_train)
page = mercer.report(model, X_test, y_test, None, X_train=X_train, y_train=y_train)
for sentence in page.sections[0].words:
    print(sentence)

# %%
# Your own picture of the numbers on the page.

numbers = page.to_dict()
errors = {name: one["error"] for name, one in numbers["verdict"]["errors"].items()}
plt.figure(figsize=(6, 2.4), layout="constrained")
plt.barh(list(errors)[::-1], list(errors.values())[::-1])
plt.xlabel("RMSE")
plt.show()
