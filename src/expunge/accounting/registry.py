"""Accountants by name."""

from __future__ import annotations

from expunge.accounting._accountant import Accountant
from expunge.accounting.best import BestAccountant
from expunge.accounting.closed_forms import AdvancedAccountant, BasicAccountant, PaperAccountant
from expunge.accounting.pld import PLDAccountant
from expunge.accounting.zcdp import ZCDPAccountant
from expunge.errors import ParameterError

_ACCOUNTANTS: dict[str, Accountant] = {
    each.name: each
    for each in (
        PaperAccountant(),
        BasicAccountant(),
        AdvancedAccountant(),
        ZCDPAccountant(),
        PLDAccountant(),
        BestAccountant(),
    )
}

ACCOUNTANT_NAMES = tuple(_ACCOUNTANTS)
"""The names that `accountant` knows, weakest first."""


def accountant(name: str) -> Accountant:
    """Return the accountant called `name`; accountants hold no state, so everyone shares one of each."""
    try:
        return _ACCOUNTANTS[name]
    except (KeyError, TypeError):
        known = ", ".join(ACCOUNTANT_NAMES)
        raise ParameterError(f"accountant must be one of {known}, got {name!r}") from None
