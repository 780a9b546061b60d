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
