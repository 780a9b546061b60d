"""What Boost10's numbers need in words."""

HEAD = """# Boost10, printed and ours

P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines", IEEE Transactions
on Neural Networks 21 (2010). `MERCER_DATA=… python benchmarks/papers/boost10/run.py` measures and writes this page.

KIN40K: 36 000 / 4000 rows, inputs standardised, NMSE in percent. Kernel of equation 33, θ₀ exp(−½ Σ θ_d (x_d −
x'_d)²) + θ_b, and λ by the evidence of 1000 training rows, shared by all methods. T = 500, S = 50, at most 500
learners or 1000 vectors, κ = 60, τ₁ = 10⁻², τ₂ = 10⁻⁴ (tables II and III). Seconds are CPU seconds of one thread,
those of the test rows included, as in the paper. The paper averages 30 runs and prints no spread. The budget of 200 s
on its machine is read as the time in which MAX-RES reaches 700 vectors, where its tables IV and V put it.

Not to be had: OUTAOUAIS and the training file of SARCOS, hence figures 1 and 3 and two of the three rows of tables IV
and V; figures 4 and 5, which the paper draws for OUTAOUAIS, are of KIN40K here.
"""

KIN40K = """
"""
PROBE = """
"""
COVTYPE = """
"""
OURS = """
"""
