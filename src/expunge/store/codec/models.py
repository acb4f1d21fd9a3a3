"""Shard models of a learner, in the learner's own arrays where it offers them.

A learner may have two methods, `dump_model(model)`, which returns a dictionary of arrays, numbers and texts, and
`load_model(parts)`, which makes the model of it again. Then its models are stored as those arrays, and no class besides
the learner's own has to be known or trusted. A sliced learner's methods are given the whole `SlicedModel`, with its
checkpoints. The models that need no learner, of empty shards and of shards with one class, are stored as they are.

The list of classes, which a scikit-learn model has from its learner, is not stored with every model: a shard's file
names only the labels that the shard has seen, so that a label can be erased with its last record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from expunge.errors import ModelFormatError
from expunge.learners import Abstainer, ConstantModel, Learner, Model, ScikitModel, SlicedLearner, SlicedModel
from expunge.store.codec.codec import Encoded, decode, encode

_OWN_PARTS = "learner's parts"


def encode_model(learner: Learner | SlicedLearner, model: Model, *, trusted: Iterable[str] = ()) -> Encoded:
    """The model of one shard as bytes."""
    if not _has_hooks(learner) or isinstance(model, Abstainer | ConstantModel):
        return encode(_without_names(learner, model), trusted=trusted)
    parts = learner.dump_model(model)  # type: ignore[union-attr]
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts):
        raise ModelFormatError(f"{type(learner).__name__}.dump_model must return a dictionary with names as keys")
    return encode((_OWN_PARTS, parts), trusted=trusted)


def decode_model(learner: Learner | SlicedLearner, format: str, data: bytes, *, trusted: Iterable[str] = ()) -> Model:
    """The model of `encode_model`."""
    value = decode(format, data, trusted=trusted)
    if _has_hooks(learner) and isinstance(value, tuple):
        return _loaded(learner, value)
    if not hasattr(value, "predict"):
        raise ModelFormatError(f"the stored value is no model: {type(value).__name__} has no predict")
    return _with_names(learner, value)  # type: ignore[no-any-return]


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


def _loaded(learner: Any, value: tuple[Any, ...]) -> Model:
    try:
        tag, parts = value
        if tag == _OWN_PARTS:
            return learner.load_model(parts)  # type: ignore[no-any-return]
    except Exception as error:
        detail = next(iter(str(error).splitlines()), "")
        raise ModelFormatError(f"the learner cannot load the stored model: {type(error).__name__}: {detail}") from error
    raise ModelFormatError("the stored value is no model")


def _has_hooks(learner: Any) -> bool:
    return hasattr(learner, "dump_model") and hasattr(learner, "load_model")
