"""Every constant of the race that was chosen by looking at tables, with what it brings and where it was chosen.

The tables at hand were split before anything was measured, by the parity of the first byte of the SHA-256 of their
names: even ones to CHOOSE by, odd ones to be looked at ONCE, when everything stood. (house_8L is house_16H with fewer
columns, and stays with it.)
"""

CHOSEN_BY = {
    "regression": (
        "boston", "elevators", "pol", "cal_housing", "house_16H", "healthcare_insurance", "hotel_rates",
    ),
    "classification": (
        "ionosphere", "page_blocks", "sonar", "spambase", "wdbc", "wine", "ripley", "letter", "raetsch_heart", "churn",
        "titanic", "penguins", "loans",
    ),
}  # fmt: skip
LOOKED_AT_ONCE = {
    "regression": (
        "abalone", "kin8nm", "pumadyn32nm", "sarcos_test_only", "gal_protein", "kin40k", "concrete", "diamonds", "ames",
    ),
    "classification": (
        "cmc", "ecoli", "glass", "iris", "pima", "segment", "waveform21", "ijcnn1", "covtype", "raetsch_banana",
        "raetsch_breast_cancer", "credit-g", "adult", "nycflights13",
    ),
}  # fmt: skip

#: Penalties λ on the diagonal of a kernel of unit variance: every half decade.
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 2))
#: The middle of each family's ladder of length-scales, in typical distances; the ladder's rungs are factors of two.
LENGTHS = {"gaussian": 0.8, "matern32": 1.4, "matern12": 5.6, "cityblock": 1.4, "linear": 1.0}
#: Rows and rounds of the evidence that gives one length-scale per input.
ARD_ROWS, ARD_ROUNDS = 400, 20
#: Rows by which column maps and families are compared first, all left out in turn.
FIRST_ROWS = 300
#: Rows by which transforms are learned and compared; rows that judge them.
ROWS, JUDGING_ROWS = 500, 1000
#: Rows by which the last few are fitted, and judged.
LAST_ROWS, LAST_JUDGING_ROWS = 1500, 1500
#: Tables of fewer rows than this are judged by folds.
FOLDED, FOLDS = 1400, 3
#: Column maps that go on after the first look.
MAPS = 3
#: Candidates that reach the last round; members kept at most; the share of the loss that a further member must bring.
FINALISTS, MEMBERS, GAIN = 6, 4, 0.003
#: Length-scales of the first look, by their places on the ladder of the family.
FIRST_LENGTHS = {"matern32": (-1, 0, 1), "matern12": (0,), "cityblock": (-1, 0, 1), "gaussian": (0,), "linear": (0,)}
#: Draws of the greedy average.
DRAWS = 12
#: Families that always run with a metric; another runs where the first look has it this close to the best.
ROUGH, CLOSE = ("matern32", "matern12", "cityblock"), 0.02
#: Gradient steps at most; points tried for a family on a new track, after a step, and in the last round.
STEPS, TRIALS, TRIALS_ON, LAST_TRIALS = 3, 5, 3, 2
#: Candidates of the last round whose length-scale and penalty are looked for again.
SETTLED = 3
#: Rows by which a member takes the last step to its transform once more.
METRIC_ROWS = 3000
#: Combinations of outputs whose gradients count.
OUTPUTS = 5
#: Whether every column map gets its own evidence.
EVIDENCE_BY_MAP = True
#: Rows at which gradients are taken, at most: their outer products are averaged.
SLOPE_ROWS = 800
