"""Every constant of the selection that was chosen by looking at tables, with what it brings and where it was chosen.

The tables are the development tables of `benchmarks/peers/tables_data.py`, those of its part `choose` unless a comment
names others.
"""

# Below, "gain" is the mean change of the test error (log loss for classes) over the tables to choose by where the
# constant was varied, two splits each, exact kernel ridge on at most 12 000 rows.

#: Penalties λ on the diagonal of a kernel of unit variance: every half decade. Refitting on all rows with λ/3 or 3λ
#: changes errors by +0.3 and +1.7 %, with 0.7 or 1.4 times the length-scale by +0.9 and +0.8 %: nothing drifts.
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 2))
#: The share of the loss that each half decade of a smaller penalty must gain: where the loss is flat, walks along it
#: ended in penalties a thousand times smaller, which gain nothing and ask for double precision. Not chosen by tables.
DEARER = 1e-3
#: The middle of each family's ladder of length-scales, in typical distances; the ladder's rungs are factors of two.
LENGTHS = {"gaussian": 0.8, "matern32": 1.4, "matern12": 5.6, "cityblock": 1.4, "linear": 1.0}
#: Families that always run with a metric; another runs where the first look has it this close to the best. Without
#: the city-block kernel errors of regression rise by 1.7 % (cal_housing and hotel_rates by 13 %).
ROUGH, CLOSE = ("matern32", "matern12", "cityblock"), 0.02

#: Rows by which families are compared first, each left out in turn, and the length-scales they start from. 300 instead
#: change errors of regression by −0.2 ± 0.3 % and log loss by 0.1 ± 0.7 %.
FIRST_ROWS = 200
FIRST_LENGTHS = {"matern32": (-1, 0, 1), "matern12": (0,), "cityblock": (-1, 0, 1), "gaussian": (0,), "linear": (0,)}
#: Rows by which transforms are learned and compared; rows that judge them. 1000 instead of 500 gain 0.2 %.
ROWS, JUDGING_ROWS = 500, 1000
#: A selection without a time limit takes about so many times as long as its first stage: with less time left, its last
#: stage has fewer rows.
USUAL = 200.0
#: Rows by which the last few are fitted, and judged. 2500 and 2000 instead gain 1.4 %, for three times the time.
LAST_ROWS, LAST_JUDGING_ROWS = 1500, 1500
#: Of more rows this part, up to so many, since what suits few rows need not suit many: 4000 instead of 1500 gain 1.5 %
#: on hotel_rates (10 268 rows) and 1.4 % on adult (32 561).
LAST_PART, LAST_MOST_ROWS = 6, 4000
#: Tables of fewer rows than this are judged by folds in the last round; of fewer than the other, in all. Of tables
#: between them healthcare_insurance, titanic and ripley keep their errors, for a third of the time.
FOLDED, SMALL, FOLDS = 1400, 600, 3
#: Folds of tables between them. Two instead of three take a fifth off the time of a fit; errors (log loss for classes)
#: rise by 0.1 % (1100 rows of letter, spambase, page_blocks, churn, pol, elevators, cal_housing, house_16H, ripley,
#: hotel_rates, healthcare_insurance and titanic, two splits each; single ones change by up to 5 %).
LAST_FOLDS = 2

#: Gradient steps at most. Without any metric errors rise by 23 % (regression) and 6 % (classes); five instead of
#: three steps lose 0.5 %. Of fifteen kinds of step (base family, diagonal or full, power ½ or 1, from none or from the
#: evidence) the two that are used leave 0.4 % of the held-out loss that all of them together would gain.
STEPS = 3
#: Inputs at most for full metrics: each of their roots takes time by the cube (3000 inputs of 60 rows: 40 s of 45).
#: Not chosen by tables.
FULL_INPUTS = 1000
#: Powers of the metric by which gradient steps are taken, of a diagonal and of a full one: the first in every round,
#: both in the last. The second gains 0.9 % (sixteen tables of numbers, 6000 rows, docs/benchmarks.md; a sine of three
#: projections 8.5 %, cal_housing 2.2 %), for a hundredth of the time.
POWERS = ((1.0, 0.5), (0.5, 1.0))
#: Further steps in the last round, and of how many candidates. With all maps that are near instead of three at most
#: they gain 2.5 % (regression, 2500 rows, one split; cal_housing 9 %, pol 8 %).
STEPS_ON, ONWARD = 2, 2
#: The best candidate of each kind of distance goes on by a descent on left-out rows (`descent`): of so many rows, and
#: of this part of all, in folds. They gain 3.6 % (twelve tables of numbers, 6000 rows, docs/benchmarks.md; pol 20 %,
#: cal_housing 8 %) and 6 % of log loss (letter, spambase, page_blocks, churn). Three folds lose 0.5 % of that, 1000
#: rows 0.4 %; one row at a time gains 0.3 %, at three times the time. A third of the rows instead of a quarter gains
#: 1.2 ± 0.8 % (thirteen tables of numbers, 4000 rows; airfare 8 %, weather 4 %, storms 3 %; pol loses 2 %), for 1.14
#: times the time of the race; half of them 1.4 ± 1.1 %, for 1.28.
DESCENT_ROWS, DESCENT_PART, DESCENT_FOLDS = 1500, 3, 5
#: Rounds at most, the prior on the logarithms of factors, and the share of the left-out error that a descent must have
#: gained after so many rounds. Eight rounds instead of twelve change the loss of rows that had no say by −0.5 ± 0.5 %
#: (numbers: pol, cal_housing, elevators, house_16H) and −0.1 ± 0.1 % (classes: letter, spambase, page_blocks, churn;
#: 6000 rows, three splits each) in four fifths of the time of a descent. Five are as good there, but lose up to 9 % on
#: 12 000 rows of pol. Seven times the prior loses 1 %; descents that gained less than two percent on their own rows
#: gained next to nothing on others.
DESCENT_ROUNDS, DESCENT_PRIOR, DESCENT_LOOK, DESCENT_GAIN = 8, 0.003, 3, 0.02
#: The most that descents gain on other rows (pol: a fifth). By luck alone k factors gain 2k/n on the n numbers they are
#: fitted to (H. Akaike), so where that is more there is none. With a quarter of its rows ames (77 factors, 488 rows)
#: loses 0.9 ± 0.7 % by them (ten folds inside the training rows), for a third of a race's time; 22 mixed tables of 2000
#: rows and up to 52 factors gain 0.1 ± 0.1 %, pol of as many rows 9 %.
DESCENT_MOST = 0.2
#: A kind of distance with so many times the best loss has no descent. The best kind alone loses 0.2 %.
DESCENT_FAR = 1.1
#: Rows at which gradients are taken, at most, and combinations of outputs whose gradients count.
SLOPE_ROWS, OUTPUTS = 800, 5
#: Gradients (rows times inputs) that are taken at most: of many inputs, each row says more.
SLOPE_SIZE = 20_000
#: Rows by which a member takes the last step to its transform once more, and in units of the last round's. 1500
#: instead of 3000 cost 0.8 %.
METRIC_ROWS, METRIC_TIMES = 3000, 1.5
#: Rows of the evidence that gives one length-scale per input: at least, for each input, at most; its rounds, and the
#: length-scale it starts from in units of the inputs' norm. Without the evidence errors of regression rise by 6 %. The
#: start and the rows for each input were set on pumadyn32nm, which is no table to choose by: half instead of the whole
#: norm finds all inputs that matter from 500 rows in three of three samples, instead of in one.
ARD_ROWS, ARD_ROWS_PER_INPUT, ARD_MOST_ROWS, ARD_ROUNDS, ARD_START = 400, 16, 600, 28, 0.5
#: Rounds of the evidence of further maps, which start where the first one on those rows ended.
ARD_ROUNDS_ON = 5
#: Up to so many inputs every column map has its own evidence.
ARD_BY_MAP = 16

#: Points tried for a family on a new track, after a step, and in the last round; candidates of the last round whose
#: length-scale and penalty are looked for again.
TRIALS, TRIALS_ON, LAST_TRIALS, SETTLED = 5, 3, 2, 3
#: Points tried for a family where the same step of another column map has shown where to start: with this, FAR, NEAR
#: and the evidence's warm starts the race takes two thirds of the time, at errors of regression 1.4 % lower.
TRIALS_AGAIN = 2
#: A family that starts with so many times the least loss so far is not tuned on that track (but on tables of one round,
#: SMALL, all are: log loss of penguins rises by 15 % otherwise). Errors of regression change by 0.0 ± 0.2 %, log loss
#: by −0.2 ± 0.3 % (larger tables to choose by, 1200 and 3000 rows of each, three splits; 1.1 and 1.25 are as good).
BEHIND = 1.05
#: A column map with so many times the best loss does not go on to metrics, a candidate not to the last round. One map
#: instead of two costs 1.4 %; on cal_housing three gain 5 % over two. With the standard map alone errors of regression
#: rise by 2.8 % (house_16H 12 %, cal_housing 6 %).
FAR = 1.25
#: Nor does one whose values differ from a better one's by less than this share of their squared error.
NEAR = 0.03
#: Candidates that reach the last round; members kept at most; the share of the loss that a step or a further member
#: must bring; draws of the average. The average gains 5 % over its largest member; more finalists, members and draws
#: (10, 6, 20) with a sixth of the gain bring nothing.
FINALISTS, MEMBERS, GAIN, DRAWS = 6, 4, 0.003, 12

#: Races of a table with categories, dates or gaps, each on rows in another order, whose averages are averaged, up to so
#: many rows: what they choose differs, and so do their errors. Of 2000 rows three gain 2.2 % over one (six tables, four
#: splits each: churn 5 %, ames 4 %, adult 2 %, hotel_rates and titanic 1 %), eight members of one race 0.6 %. Tables of
#: numbers alone, and of fewer rows than the first number, run once.
RACED_AGAIN, RACES = 400, ((3000, 3), (8000, 2))

#: Rows of unknown class beside those by which probabilities are fitted. One instead of none takes 14 % off the log
#: loss (twelve tables, two splits of 1800 rows), nearly all of it on penguins, where no row left out is mistaken and
#: some test rows are. Left aside there: wine, without any mistake, where it rises from 0.001 to 0.005. Two instead of
#: one gain 0.4 %.
DOUBT = 1.0
