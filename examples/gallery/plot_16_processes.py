"""
Two processes, one model
========================

Under `torchrun` every process runs the same program, names the same table and gets its share of the rows. Processes
exchange sums over rows, not rows, and all end with the same model. Here one process and two processes fit it, as two
machines of a cluster would.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import mercer
from mercer.datasets import make_smooth_regression

FIT = """
import os
import sys
import mercer.distributed
from mercer.datasets import make_smooth_regression
from mercer.kernels import Gaussian

mercer.distributed.init()
X, y = make_smooth_regression(24_000, 4, noise=0.05, random_state=0)
fixed = {"kernel": Gaussian(2.0), "regularization": 0.1, "dtype": "float64", "random_state": 0}
model = mercer.KernelBoostingRegressor(5, learner_size=100, **fixed)
model.fit(X[:20_000], y[:20_000])
if os.environ["RANK"] == "0":
    model.save(sys.argv[1], stages=True)
"""


def fitted(processes, folder):
    """The model of so many processes on this machine."""
    script, model = Path(folder, "fit.py"), Path(folder, f"by_{processes}.mercer")
    script.write_text(FIT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    subprocess.run([*launch, str(script), str(model)], check=True, capture_output=True)
    return mercer.load(model)


X, y = make_smooth_regression(24_000, 4, noise=0.05, random_state=0)
X_test, y_test = X[20_000:], y[20_000:]
with tempfile.TemporaryDirectory() as folder:
    one, two = (fitted(n, folder) for n in (1, 2))
apart = np.abs(one.predict(X_test) - two.predict(X_test)).max()
print(f"R² of one process {one.score(X_test, y_test):.4f}, of two {two.score(X_test, y_test):.4f}")
print(
    f"the same basis vectors: {np.array_equal(one.basis_indices_, two.basis_indices_)}, answers differ by {apart:.1e}"
)

# %%
# The errors after each learner are the same.
plt.figure(figsize=(6, 3.2), layout="constrained")
for model, mark, name in ((one, "o-", "one process"), (two, "x--", "two processes")):
    errors = [np.sqrt(np.mean((p - y_test) ** 2)) for p in model.staged_predict(X_test)]
    plt.plot(range(1, len(errors) + 1), errors, mark, ms=8, label=name)
plt.xlabel("learners of 100 basis vectors")
plt.ylabel("RMSE of test rows")
plt.legend(frameon=False)
plt.show()
