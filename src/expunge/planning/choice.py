"""Which offer is the best one."""

from __future__ import annotations

from collections.abc import Sequence

from expunge.planning.offer import Offer
from expunge.planning.work import Alternatives


def best_offer(offers: Sequence[Offer], exact: Alternatives) -> Offer | None:
    """The certified offer with the least work, the most predictions, the most accuracy; None if there is none.

    What saves at least half of retraining from scratch without supposing anything about the traffic goes before what
    may save more if the traffic is as supposed.
    """
    certified = [offer for offer in offers if offer.predictions > 0]
    return cheaper_offer(offers, exact) or min(certified, key=_preference, default=None)


def cheaper_offer(offers: Sequence[Offer], exact: Alternatives) -> Offer | None:
    """The best of the certified offers that are cheaper than retraining from scratch; None if there is none."""
    cheaper = [offer for offer in offers if offer.predictions > 0 and offer.schedule.passes_per_day < exact.cheapest]

    def rank(offer: Offer) -> tuple[bool, tuple[float, int, float]]:
        is_safe = not offer.assumption and offer.schedule.passes_per_day <= exact.cheapest / 2
        return not is_safe, _preference(offer)

    return min(cheaper, key=rank, default=None)


def _preference(offer: Offer) -> tuple[float, int, float]:
    return offer.schedule.passes_per_day, -offer.predictions, -(offer.majority_accuracy or 0.0)
