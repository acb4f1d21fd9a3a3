"""Privacy accounting: events, accountants that compose them, and the ledger."""

from expunge.privacy.accounting.accountants import ACCOUNTANT_NAMES, Accountant, accountant
from expunge.privacy.accounting.composition import Composition, Events, compose
from expunge.privacy.accounting.events import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    Event,
    GaussianDP,
    NonPrivate,
    PrivacyBudget,
    PureDP,
)
from expunge.privacy.accounting.ledger import Ledger

__all__ = [
    "ACCOUNTANT_NAMES",
    "Accountant",
    "ApproximateDP",
    "BoundedRange",
    "Composition",
    "ConcentratedDP",
    "Event",
    "Events",
    "GaussianDP",
    "Ledger",
    "NonPrivate",
    "PrivacyBudget",
    "PureDP",
    "accountant",
    "compose",
]
