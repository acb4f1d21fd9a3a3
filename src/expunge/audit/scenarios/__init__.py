"""The built-in attacks, ready to be pointed at a scheme."""

from expunge.audit.scenarios.labels import label_only_scenario
from expunge.audit.scenarios.lookup import lookup_scenario
from expunge.audit.scenarios.membership import membership_scenario
from expunge.audit.scenarios.slow_down import slow_down_scenario
from expunge.audit.scenarios.white_box import white_box_scenario

__all__ = [
    "label_only_scenario",
    "lookup_scenario",
    "membership_scenario",
    "slow_down_scenario",
    "white_box_scenario",
]
