"""A deployment's settings as plain data, so that a folder opens with the options that it was created with."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass, replace
from typing import Any

from expunge.core.checks import require_count
from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting import ACCOUNTANT_NAMES, Accountant
from expunge.privacy.accounting import accountant as accountant_by_name
from expunge.privacy.mechanisms import MECHANISM_NAMES
from expunge.privacy.mechanisms import mechanism as mechanism_by_name
from expunge.serving.publishing.publisher import require_limit
from expunge.serving.settings import Settings, as_budget


def dump_settings(
    settings: Settings, *, num_shards: int, probability: float | None, num_classes: int
) -> dict[str, Any]:
    """Return the settings as plain data, with the values that were found for them. Options must have names."""
    if not isinstance(settings.sampling, str):
        raise ParameterError(f"a deployment on disk takes sampling by its name, got {settings.sampling!r}")
    budget, is_independent = as_budget(settings.budget), settings.sampling == "independent"
    target = settings.target
    return {
        "n_shards": num_shards,
        "inclusion_probability": None if probability is None or not is_independent else float(probability),
        "sampling": settings.sampling,
        "mechanism": _dump_mechanism(settings, num_shards, num_classes),
        "target": None if target is None else [float(target.alpha), float(target.beta), float(target.gamma)],
        "max_predictions": None if settings.max_predictions is None else require_limit(settings.max_predictions),
        "budget": None if budget is None else [float(budget.epsilon), float(budget.delta)],
        "accountant": _accountant_name(settings.accountant),
        "on_exhausted": settings.on_exhausted,
        "max_generations": require_count("max_generations", settings.max_generations),
    }


def load_settings(data: dict[str, Any]) -> Settings:
    """Read what `dump_settings` wrote. The front is stored separately."""
    try:
        target, mechanism = data["target"], data["mechanism"]
        loaded = Settings(**{**data, "target": None, "mechanism": "consensus"})
        return replace(
            loaded,
            target=None if target is None else Guarantee(*target),
            budget=as_budget(data["budget"]),
            mechanism=mechanism if isinstance(mechanism, str) else mechanism_by_name(mechanism[0], **mechanism[1]),
        )
    except (TypeError, KeyError, IndexError, InputError) as error:
        raise FormatError(f"the deployment's settings are damaged: {error}") from None


def _dump_mechanism(settings: Settings, num_shards: int, num_classes: int) -> Any:
    if settings.mechanism == "consensus":
        return "consensus"
    mechanism: Any = settings.make_mechanism(num_shards, num_classes)
    parameters: dict[str, Any] = asdict(mechanism) if is_dataclass(mechanism) else {}  # type: ignore[arg-type]
    if mechanism.name not in MECHANISM_NAMES or mechanism_by_name(mechanism.name, **parameters) != mechanism:
        raise ParameterError(f"a deployment on disk takes the mechanisms of this package, got {mechanism!r}")
    return [mechanism.name, parameters]


def _accountant_name(accountant: str | Accountant) -> str:
    name = accountant if isinstance(accountant, str) else accountant.name
    is_known = name in ACCOUNTANT_NAMES
    if is_known and not isinstance(accountant, str):
        is_known = type(accountant) is type(accountant_by_name(name))
    if not is_known:
        known = ", ".join(ACCOUNTANT_NAMES)
        raise ParameterError(f"a deployment on disk takes an accountant by its name ({known}), got {accountant!r}")
    return name
