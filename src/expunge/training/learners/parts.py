"""Models as parts that can be stored: arrays, numbers and texts, or a model that needs nothing else.

A learner may have two methods: `dump_model(model)` returns a dictionary of arrays, numbers and texts, and
`load_model(parts)` makes the model from it again. Then its models are stored as those arrays, and only the learner's
own class has to be known or trusted. A sliced learner's methods are given the whole `SlicedModel`, with its
checkpoints. Models that need no learner, of empty shards and of shards with one class, are stored as they are.

A model that holds the records themselves need not be stored with them where the records are stored already. Its learner
has `dump_summary(model)`, what else there is of it (None if it is not such a model), and `load_summary(parts, rows)`,
where `rows()` reads the shard's records when they are first needed.

A scikit-learn model gets its list of classes from its learner: the list is not stored with every model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from expunge.core.errors import ModelFormatError
from expunge.training.learners.protocol import Abstainer, Learner, Model, ShardData, SlicedLearner
from expunge.training.learners.scikit import ConstantModel, ScikitModel
from expunge.training.learners.slices import SlicedModel

_OWN_PARTS, _BESIDE_RECORDS = "learner's parts", "learner's parts beside records"


def parts_of(learner: Learner | SlicedLearner, model: Model, *, beside_records: bool = False) -> Any:
    """Take a model apart, so that it can be stored.

    Parameters
    ----------
    learner
        The learner that trained it.
    model
        The model.
    beside_records
        Whether the shard's records are stored too, so that the parts need not hold them.

    Returns
    -------
    Any
        What `model_of` makes the model from again.

    Raises
    ------
    ModelFormatError
        If the learner's `dump_model` returns something other than a dictionary with names.

    Examples
    --------
    >>> from expunge.training.learners import LookupTableLearner
    >>> learner = LookupTableLearner()
    >>> model_of(learner, parts_of(learner, ConstantModel(3)))
    ConstantModel(code=3)
    """
    if not _has_hooks(learner) or isinstance(model, Abstainer | ConstantModel):
        return _without_names(learner, model)
    if beside_records and hasattr(learner, "dump_summary"):
        summary = learner.dump_summary(model)
        if summary is not None:
            return _BESIDE_RECORDS, summary
    parts = learner.dump_model(model)  # type: ignore[union-attr]
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts):
        raise ModelFormatError(f"{type(learner).__name__}.dump_model must return a dictionary with names as keys")
    return _OWN_PARTS, parts


def model_of(learner: Learner | SlicedLearner, parts: Any, *, rows: Callable[[], ShardData] | None = None) -> Model:
    """Make a model from its parts again.

    Parameters
    ----------
    learner
        The learner that trained it.
    parts
        What `parts_of` returned.
    rows
        Reads the shard's records, for parts that were stored beside them.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    ModelFormatError
        If the parts are no model's, or the learner cannot load them.
    """
    if _has_hooks(learner) and isinstance(parts, tuple):
        return _loaded(learner, parts, rows)
    if not hasattr(parts, "predict"):
        raise ModelFormatError(f"the stored value is no model: {type(parts).__name__} has no predict")
    return _with_names(learner, parts)  # type: ignore[no-any-return]


def _without_names(learner: Any, model: Any) -> Any:
    if isinstance(model, SlicedModel):
        return replace(model, final=_without_names(learner, model.final))
    listed: Any = getattr(learner, "classes", None)
    if isinstance(model, ScikitModel) and model.classes is not None and np.array_equal(model.classes, listed):
        return replace(model, classes=None)
    return model


def _with_names(learner: Any, model: Any) -> Any:
    if isinstance(model, SlicedModel):
        return replace(model, final=_with_names(learner, model.final))
    if isinstance(model, ScikitModel) and model.classes is None:
        return replace(model, classes=getattr(learner, "classes", None))
    return model


def _loaded(learner: Any, value: tuple[Any, ...], rows: Callable[[], ShardData] | None) -> Model:
    try:
        tag, parts = value
        if tag == _OWN_PARTS:
            return learner.load_model(parts)  # type: ignore[no-any-return]
        if tag == _BESIDE_RECORDS and rows is not None:
            return learner.load_summary(parts, rows)  # type: ignore[no-any-return]
    except Exception as error:
        detail = next(iter(str(error).splitlines()), "")
        raise ModelFormatError(f"the learner cannot load the stored model: {type(error).__name__}: {detail}") from error
    raise ModelFormatError("the stored value is no model")


def _has_hooks(learner: Any) -> bool:
    return hasattr(learner, "dump_model") and hasattr(learner, "load_model")
