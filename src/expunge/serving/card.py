"""The card of a deployment for notebooks: what is promised, of which records and shards, and what a deletion costs.

It stands in a page that somebody else made: it has no style sheet, and takes the colours of the page. It shows public
facts. A time is shown under the exact promise only: under the others it depends on secrets.
"""

from __future__ import annotations

from typing import Any, Final

from expunge.core.html import escape, tag, tag_text
from expunge.core.words import plural, spell_time
from expunge.serving.promises import Promise, Statement

_BOX: Final = (
    "border:1px solid rgba(128,128,128,.5);border-radius:6px;padding:.6em 1em;margin:.3em 0;max-width:48em;"
    "line-height:1.45;text-align:left"
)
_NAME: Final = "opacity:.7;padding:.15em 1.2em .15em 0;vertical-align:top;text-align:left;white-space:nowrap"
_VALUE: Final = "padding:.15em 0;text-align:left;white-space:normal"


def make_card(deployment: Any, title: str, *, seconds_to_train: float | None = None) -> str:
    """The card of a deployment, as markup.

    Parameters
    ----------
    deployment
        The deployment.
    title
        The name of what is shown.
    seconds_to_train
        The processor time of training all models; None if it is not known.

    Returns
    -------
    str
        The markup.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from expunge import UnlearningClassifier
    >>> model = UnlearningClassifier(n_shards=5, random_state=0).fit(*load_iris(return_X_y=True))
    >>> "trains 1 of 5 models again" in make_card(model.deployment_, "UnlearningClassifier")
    True
    """
    status = deployment.status
    rows = [(f"promise: {each.name}", _claim(each)) for each in deployment.promise]
    rows += [
        ("records", f"{status.num_records:,}, after {plural(status.round, 'update')}"),
        ("shards", f"{status.num_shards:,}, with one {_learner(deployment)} each"),
        ("a deletion", _cost(deployment, seconds_to_train)),
        ("answers", _answers(deployment)),
    ]
    return _box(title, rows)


def make_promise_line(promise: Promise, n_shards: Any) -> str:
    """What an estimator will promise once it is fitted, as markup.

    Parameters
    ----------
    promise
        The promise that is asked for.
    n_shards
        The number of shards, or "auto".

    Returns
    -------
    str
        The markup.
    """
    return _box("not fitted", [("promise", promise.name), ("shards", str(n_shards))])


def _box(title: str, rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        tag("tr", tag_text("td", name, style=_NAME) + tag_text("td", value, style=_VALUE)) for name, value in rows
    )
    table = tag("table", tag("tbody", cells), style="border-collapse:collapse;margin:.3em 0;font-size:inherit")
    return f'<div style="{escape(_BOX)}">{tag_text("strong", title)}{table}</div>'


def _claim(statement: Statement) -> str:
    if not statement.is_claimed:
        return f"not claimed: {statement.reason.rstrip('. ')}."
    return " ".join(statement.in_short) or statement.statement


def _learner(deployment: Any) -> str:
    """The name of what trains a shard."""
    learner = deployment.inside.state.learner
    learner = getattr(learner, "learner", learner)  # one that may abstain stands before another
    estimator = getattr(learner, "estimator", learner)
    steps = getattr(estimator, "steps", None)  # of a Pipeline: the last one predicts
    return type(steps[-1][1] if steps else estimator).__name__


def _cost(deployment: Any, seconds_to_train: float | None) -> str:
    """How many models a deletion trains again: on average, by numbers that are public."""
    state = deployment.inside.state
    k, learner = state.num_shards, state.learner
    if hasattr(getattr(learner, "learner", learner), "refit"):
        return "trains nothing: the model is updated exactly."
    touched = max(1.0, k * state.sampler.inclusion_probability(k))
    models = "1" if touched == 1 else f"about {touched:.3g}"
    told = f"trains {models} of {k:,} models again" if k > 1 else "trains the one model again"
    if not deployment.is_exact:
        return f"{told}; once a generation is used up, the next update trains all of them."
    if seconds_to_train is None:
        return f"{told}."
    return f"{told}: about {spell_time(seconds_to_train * touched / k)} of processor time."


def _answers(deployment: Any) -> str:
    if deployment.is_exact:
        numbers = "values" if deployment.records.is_regression else "labels, probabilities"
        return f"{numbers} and the models may be published without limit."
    budget = deployment.status.budget
    if budget is None:
        return "labels only; how many are left is for the operator to know."
    left = "without a limit" if budget.predictions_left == float("inf") else f"{budget.predictions_left:,} left"
    return f"labels only, {left}."
