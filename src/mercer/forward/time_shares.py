"""How a fit divides its time budget: the one table of shares.

A share "until" is that of the whole budget which is spent when a part of the fit ends. Without a budget no part ends by
time.

| part of the fit | until |
|---|---|
| selection by successive halving, unless the exact solution leaves more | `SELECTION` |
| kernels of named families tuned by the evidence; local length-scales of large tables | `TUNING` |
| trial fits of large tables; penalties for other losses | `LAST_CHOICE` |
| compression begins | `COMPRESSION` |
| exact solutions and local stages; calibration and intervals follow | `SOLVING` |
| refinement stages and further models | `STAGES` |
"""

SELECTION, TUNING, LAST_CHOICE, COMPRESSION, SOLVING, STAGES = 0.35, 0.4, 0.5, 0.8, 0.9, 0.95
#: Share of the budget that one exact solution may take, as predicted, and the least share until the selection before
#: it ends.
EXACT, SHORT = 0.75, 0.15
#: Time set aside for a part of the fit, in units of the time that it is predicted to take.
SAFETY_FACTOR = 1.3
#: Share of the remaining time for learners of a table, or of a sample of it: a local stage may follow for the table.
LEARNERS, SAMPLE_LEARNERS = 0.7, 0.2
#: Share of the remaining time for a polish before refinement stages, and for drawing the rows of a stage.
BETWEEN_STAGES = 0.3
