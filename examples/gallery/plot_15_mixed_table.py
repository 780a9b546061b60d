"""
A table with categories, dates and gaps
=======================================

Data frames go into `fit` unchanged. Prices of flats, invented here, depend on area, age, district and the day of sale.
Some ages are missing, and one column is constant. `columns_` says how each column was encoded.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from mercer import KernelBoostingRegressor

rng = np.random.default_rng(0)
n = 1200
district = rng.choice(["harbour", "hill", "old town", "station", "west"], n, p=[0.1, 0.2, 0.2, 0.3, 0.2])
worth = pd.Series({"harbour": 1.5, "hill": 1.2, "old town": 1.3, "station": 0.8, "west": 0.9})[district].to_numpy()
sold = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
frame = pd.DataFrame(
    {
        "area": rng.gamma(8, 9, n),
        "age": np.where(rng.uniform(size=n) < 0.15, np.nan, rng.integers(0, 90, n)),
        "district": pd.Categorical(district),
        "sold": sold,
        "constant": 1.0,
    }
)
season = np.sin(2 * np.pi * sold.day_of_year.to_numpy() / 365)
price = frame["area"] * worth * (4 + 0.3 * season - 0.02 * frame["age"].fillna(45)) + rng.normal(0, 15, n)
learn, judge = np.arange(n) < 800, np.arange(n) >= 800

model = KernelBoostingRegressor(time_budget=8, random_state=0).fit(frame[learn], price[learn])
numbers = frame.assign(sold=(frame["sold"] - frame["sold"].min()).dt.days)
trees = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0).fit(
    numbers[learn], price[learn]
)
errors = {
    "kernel model": price[judge] - model.predict(frame[judge]),
    "trees": price[judge] - trees.predict(numbers[judge]),
}
for name, error in errors.items():
    print(f"{name:13s} RMSE {np.sqrt(np.mean(error**2)):.1f} (noise 15)")

# %%
print(pd.DataFrame(model.columns_).to_string(index=False, max_colwidth=40))

# %%
plt.figure(figsize=(6, 3.2), layout="constrained")
for name, error in errors.items():
    plt.hist(error, np.linspace(-100, 100, 51), histtype="step", label=name)
plt.xlabel("price, true less predicted")
plt.legend(frameon=False)
plt.show()
