"""Privacy accounting: events, composition by name, the ledger."""

from expunge.accounting._accountant import Accountant
from expunge.accounting.best import BestAccountant
from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.closed_forms import AdvancedAccountant, BasicAccountant, PaperAccountant
from expunge.accounting.composition import Composition, Events, compose
from expunge.accounting.events import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    Event,
    GaussianDP,
    NonPrivate,
    PureDP,
)
from expunge.accounting.ledger import Ledger
from expunge.accounting.pld import PLDAccountant
from expunge.accounting.registry import ACCOUNTANT_NAMES, accountant
from expunge.accounting.zcdp import ZCDPAccountant

__all__ = [
    "ACCOUNTANT_NAMES",
    "Accountant",
    "AdvancedAccountant",
    "ApproximateDP",
    "BasicAccountant",
    "BestAccountant",
    "BoundedRange",
    "Composition",
    "ConcentratedDP",
    "Event",
    "Events",
    "GaussianDP",
    "Ledger",
    "NonPrivate",
    "PLDAccountant",
    "PaperAccountant",
    "PrivacyBudget",
    "PureDP",
    "ZCDPAccountant",
    "accountant",
    "compose",
]
