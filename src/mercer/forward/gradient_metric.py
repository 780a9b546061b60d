"""`GradientMetric`: map the inputs by the metric of the selected kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import BaseKernelEstimator, estimator_dataclass
from mercer.base.parameters import check, literal
from mercer.data.column_maps import KINDS
from mercer.engine import make_plan
from mercer.engine.plan import generator
from mercer.forward.kernel_metric import column_spread, diagonal_shares, metric_matrix
from mercer.forward.model_selection import EnsembleSearch
from mercer.forward.task import normalise_weights
from mercer.preprocessing.duplicates import merge_duplicate_inputs
from mercer.preprocessing.inputs import code_targets, holds_classes
from mercer.preprocessing.read import read, read_new
from mercer.progress import with_progress
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings


@estimator_dataclass
class GradientMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseKernelEstimator):
    r"""Map the inputs so that distances reflect relevance to the targets.

    Any model that compares rows may follow.

    Columns are brought to comparable scales and multiplied by a power of M, the mean over rows of the outer product of
    a kernel model's gradients,

    .. math:: x \mapsto A\,\varphi(x), \qquad A = M^{p/2},
        \quad M = \tfrac1n \sum_n \nabla f(x_n)\, \nabla f(x_n)^\top ,

    the model is fitted again, and so on as long as the error on held-out rows falls. It is the model selection of
    `KernelBoostingRegressor` with one kernel (`mercer.selection`). The kernel's length-scale is not included: the
    squares of A sum to the number of columns, so mapped rows have the same mean length as standardised ones, and
    default length-scales of other models remain suitable.

    Parameters
    ----------
    metric : "auto", "diagonal" or "full", default "auto"
        A factor for each column, a full matrix, or the one with the lower error on held-out rows. A metric that does
        not lower that error is not used: columns are then only mapped one by one.
    task : "auto", "regression" or "classification", default "auto"
        Whether `y` holds numbers or classes; "auto" takes text and booleans for classes, and numbers for numbers.
    scale_inputs : True or "standard", default True
        True also chooses among four maps of single columns: standardised, transformed by asinh, clipped or normal
        scores; "standard" only standardises, so that the mapping is linear.
    verbose : bool, default False
        Without effect: model selection has no steps; `tuning_report_` describes it.
    callbacks : None, default None
        Without effect, for the same reason.

    Attributes
    ----------
    inputs_ : InputMap
        The mapping itself: the map of single columns and the transform A.
    metric_ : ndarray of shape (D, D)
        AᵀA: the squared distance of two rows after the mapping is (u − v)ᵀ AᵀA (u − v), u and v their mapped columns.
    relevance_ : ndarray of shape (D,)
        Share of each column of `X` in distances, of sum 1: the diagonal of AᵀA in units of a column's standard
        deviation. The `relevance_` of regressors and classifiers refers to predictions, which a transformer lacks.
    kernel_ : Kernel
        The selected kernel, on mapped rows.
    tuning_report_ : list of dict
        Model selection: candidate, rows, loss and seconds of each.

    References
    ----------
    A. Radhakrishnan, D. Beaglehole, P. Pandit and M. Belkin, "Mechanism for feature learning in neural networks and
    backpropagation-free machine learning models", Science 383 (2024). Here the error on held-out rows decides which
    steps are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from mercer import GradientMetric
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> y = np.sin(X @ [1.0, 1.0, 1.0, 1.0])
    >>> plain = KNeighborsRegressor().fit(X[:200], y[:200])
    >>> metric = GradientMetric(scale_inputs="standard", random_state=0)
    >>> mapped = make_pipeline(metric, KNeighborsRegressor()).fit(X[:200], y[:200])
    >>> for name, model in {"plain": plain, "mapped": mapped}.items():
    ...     print(f"{name}: R² = {model.score(X[200:], y[200:]):.1f}")
    plain: R² = 0.7
    mapped: R² = 1.0
    """

    metric: Annotated[str, literal("auto", "diagonal", "full")] = "auto"
    _: KW_ONLY
    task: Annotated[str, literal("auto", "regression", "classification")] = "auto"
    scale_inputs: Annotated[bool | str, literal(True, "standard")] = True

    _selection_settings: ClassVar[SelectionSettings] = DEFAULT_SETTINGS

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the mapping from rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        check(self)
        classes = self.task == "classification" or (self.task == "auto" and y is not None and holds_classes(y))
        data = read(self, X, y, sample_weight, classes=classes)
        targets = code_targets(data.y, data.weight, classes=classes, centred=True)
        rng = generator(self.random_state)
        data, Y, noise = merge_duplicate_inputs(data, targets.encode(data.y), rng, by_targets=classes)
        data = normalise_weights(data, noise, "auto")
        plan = make_plan(data.rows.n_rows, self.device, self.dtype, self.memory_limit)
        maps = KINDS if self.scale_inputs is True else ("standard",)
        settings = replace(self._selection_settings, column_maps=maps)
        search = EnsembleSearch(data, Y, plan, rng, classes, self.metric, seconds=self.time_budget, settings=settings)
        selection = search.ensemble()
        best = selection.largest(1).members[0]
        M = metric_matrix(best.inputs.transform, np.ones(data.rows.n_columns))
        return self._keep(
            **data.columns(),
            inputs_=best.inputs,
            metric_=M,
            relevance_=data.per_column(diagonal_shares(M, column_spread(best.inputs, data))),
            kernel_=best.kernel,
            tuning_report_=selection.report,
            tuning_seconds_=selection.seconds,
            _n_features_out=data.rows.n_columns,
        )

    def transform(self, X: Any) -> np.ndarray:
        """Map rows `X`, n × D."""
        check_is_fitted(self)
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        mapped = np.empty((source.n_rows, source.n_columns))
        for start, block in source.blocks(plan.chunk_rows(source.n_columns)):
            mapped[start : start + len(block)] = self.inputs_.kernel_rows(block, plan).cpu().numpy()
        return mapped
