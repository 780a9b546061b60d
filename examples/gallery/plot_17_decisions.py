"""
Uncertainty for decisions
=========================

A shop orders bread for the next day. A loaf that is missing costs 3, a loaf that is left over costs 1. The expected
cost is smallest if the order is the 75 % quantile of the demand, 3 / (3 + 1), and not its mean. One fitted model gives
both, and says for which days it has no comparable data.
"""

import matplotlib.pyplot as plt
import numpy as np

from mercer import KernelBoostingRegressor

MISSING, LEFT_OVER = 3.0, 1.0
rng = np.random.default_rng(0)


def days(n, low=5, high=28):
    """Temperature, price and demand of n days; the demand varies more on warm days."""
    X = np.column_stack([rng.uniform(low, high, n), rng.uniform(2, 4, n)])
    mean = 200 + 60 * np.sin(X[:, 0] / 5) - 30 * X[:, 1]
    return X, mean + (5 + 1.5 * X[:, 0]) * rng.normal(size=n)


def cost(order, demand):
    """Mean cost of a day."""
    return np.mean(MISSING * np.maximum(demand - order, 0) + LEFT_OVER * np.maximum(order - demand, 0))


X_train, y_train = days(1200)
X_test, y_test = days(2000)
model = KernelBoostingRegressor(kernel="matern52", random_state=0).fit(X_train, y_train)
share = MISSING / (MISSING + LEFT_OVER)
orders = {
    "mean": model.predict(X_test),
    "mean + 10 %": 1.1 * model.predict(X_test),
    f"{share:.0%} quantile": model.predict_quantiles(X_test, [share])[:, 0],
}
for name, order in orders.items():
    print(
        f"order the {name:13s} cost {cost(order, y_test):5.1f} a day, enough on {np.mean(order >= y_test):.0%} of days"
    )

# %%
# The model also says which days lie outside its training rows. A person decides on these.

hot, _ = days(200, 28, 40)
for name, rows in {"test days": X_test, "days above 28°": hot}.items():
    print(f"{model.predict_uncertainty(rows).outside.mean():4.0%} of the {name} lie outside")

# %%
# The quantile that costs least is the one that the two prices name.

levels = np.linspace(0.3, 0.95, 14)
costs = [cost(order, y_test) for order in model.predict_quantiles(X_test, levels).T]
plt.figure(figsize=(6, 3.4), layout="constrained")
plt.plot(levels, costs, "o-", label="order a quantile")
plt.axhline(cost(orders["mean"], y_test), color="C1", label="order the mean")
plt.axvline(share, color="0.5", ls="--", label="3 / (3 + 1)")
plt.xlabel("quantile")
plt.ylabel("mean cost of a day")
plt.legend(frameon=False)
plt.show()
