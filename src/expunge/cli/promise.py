"""A guarantee as a person reads it, and what would have to change where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding

from expunge.cli.output import console

if TYPE_CHECKING:
    from expunge.guarantees import Guarantee


def tell_guarantee(guarantee: Guarantee, *, provenance: dict[str, Any]) -> None:
    """What is promised, one sentence a number; or, plainly, that nothing is, why, and what would change that."""
    from expunge.planning.verdict import meaning

    if guarantee.is_vacuous:
        console.print(
            "\n[bold]No guarantee is in force[/bold] about deleted records once people have seen predictions."
        )
        say(f"Why: {guarantee.reason}.")
        advice = advice_for(guarantee, provenance)
        if advice:
            say(f"What would change that: {advice}")
        return
    claim = f"({guarantee.alpha:g}, {guarantee.beta:g}, {guarantee.gamma:g})-unlearning"
    console.print(f"\n[bold]Guarantee in force: {claim}[/bold], by {guarantee.theorem}.")
    generations = provenance.get("wanted", {}).get("max_generations", guarantee.parameters.get("generations", 1))
    for sentence in meaning(guarantee, int(generations)):
        say(sentence)


def say(sentence: str) -> None:
    """One indented sentence."""
    console.print(Padding(sentence, (0, 0, 0, 2)), markup=False)


def advice_for(guarantee: Guarantee, provenance: dict[str, Any]) -> str:
    """What would make a vacuous guarantee mean something, for a deployment made by `expunge create`; or nothing."""
    wanted = provenance.get("wanted")
    if wanted is None or not guarantee.is_vacuous:
        return ""
    plan = (
        f"`expunge plan --records {wanted['num_records']} --shards {wanted['num_shards']} "
        f"--classes {wanted['num_classes']}` weighs all the ways."
    )
    if wanted["sampling"] != "independent":
        return f"--sampling independent. {plan}"
    if wanted["mechanism"] != "consensus":
        return f"--mechanism consensus, or a --max-predictions that the noise can cover. {plan}"
    return f"{_more_shards(wanted)} {plan}"


def _more_shards(wanted: dict[str, Any]) -> str:
    from expunge.errors import GuaranteeError, ParameterError
    from expunge.guarantees import Guarantee
    from expunge.planning.advice import recommend_shards, shards_for_consensus

    target, queries = Guarantee(*wanted["target"]), wanted["max_predictions"]
    try:
        shards_for_consensus(target=target, num_generations=wanted["max_generations"], max_predictions=queries)
    except (GuaranteeError, ParameterError) as error:
        return f"a weaker target (--alpha, --beta, --gamma); as it is, {error}."
    advice = recommend_shards(
        num_records=wanted["num_records"],
        num_classes=wanted["num_classes"],
        target=target,
        num_generations=wanted["max_generations"],
        max_predictions=queries,
    )
    return (
        f"about {advice.num_shards:,} shards (--shards {advice.num_shards} --probability "
        f"{advice.inclusion_probability:.3g}), or a smaller --max-predictions or --generations."
    )
