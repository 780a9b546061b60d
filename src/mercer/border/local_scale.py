"""How far residuals reach near a row (experiment)."""
def fit_local_scale(rows, values, residuals, weight):
    import numpy as np
    return None, np.ones_like(residuals)
