"""`expunge demo`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expunge.cli.app import app
from expunge.cli.output import console, progress, show_json, show_table

if TYPE_CHECKING:
    from expunge.demo import DemoReport


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option(help="Repeat a run exactly (the default is fresh randomness).")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the deployment in this new folder (the default is a temporary one).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Train, predict, delete, add, certify, and watch plain SISA fail, on handwritten digits, in under a minute.

    Example: `expunge demo --seed 1`
    """
    from expunge.core.randomness import Randomness
    from expunge.demo import run_demo

    rng = Randomness.from_system() if seed is None else Randomness.from_seed(seed)
    with tempfile.TemporaryDirectory(prefix="expunge-demo-") as temporary:
        report = run_demo(folder or Path(temporary) / "digits", rng=rng, progress=progress)
    if as_json:
        show_json(_as_data(report))
    else:
        _tell(report)


def _as_data(report: DemoReport) -> dict[str, object]:
    data = {field.name: getattr(report, field.name) for field in fields(report)}
    return {
        **data,
        "steps": [asdict(step) for step in report.steps],
        "attack": asdict(report.attack),
        "promise": asdict(report.promise),
        "guarantee_noisy": report.guarantee_noisy.to_dict(),
        "guarantee_consensus": report.guarantee_consensus.to_dict(),
        "work_saved": report.work_saved,
        "certificate": json.loads(report.certificate.to_json()),
    }


def _tell(report: DemoReport) -> None:
    console.print(
        f"[bold]Trained[/bold] {report.num_shards} models on {report.num_records} digits, each on a shard of its own, "
        f"in {report.seconds_to_train:.1f} s; accuracy on held-out digits {report.accuracy_before:.1%}."
    )
    show_table(
        "Requests honoured",
        ["request", "rounds", "models retrained", "if everything were retrained", "seconds"],
        [
            (step.name, step.rounds, step.models_trained, step.models_if_retrained, f"{step.seconds:.1f}")
            for step in report.steps
        ],
    )
    same = "the very same objects" if report.untouched_models_are_the_same else "CHANGED, which is a bug"
    console.print(
        f"Only shards that held a changed record were retrained; the others are {same}.\n"
        f"Work saved against retraining everything for every request: [bold]{report.work_saved:.1%}[/bold]; "
        f"accuracy afterwards {report.accuracy_after:.1%}."
    )
    console.print(
        f"How often the bytes of the first deleted digit occur in the deployment's folder: {report.traces_before} "
        f"before, {report.traces_after} after."
    )
    _tell_promise(report)
    _tell_attack(report)
    consensus = report.guarantee_consensus
    console.print("\n[bold]The other promise: compared with fresh randomness[/bold]")
    console.print(
        "  Against such requesters the comparison must be with training under new secrets. That costs more:\n"
        f"  noisy answers, {report.noisy_predictions} predictions a generation: {report.guarantee_noisy}\n"
        f"  consensus publishing with {consensus.parameters['num_shards']} shards, "
        f"{consensus.parameters['max_queries']} predictions a generation on which at least "
        f"{consensus.parameters['sure_release_share']:.0%} of the shards agree: {consensus}\n"
        "  `expunge plan` says what can be promised for your own numbers."
    )
    _tell_certificate(report)


def _tell_certificate(report: DemoReport) -> None:
    certificate = report.certificate
    verdict = "holds" if report.certificate_holds else "DOES NOT HOLD, which is a bug"
    console.print("\n[bold]The certificate of the first request[/bold]")
    console.print(
        f"  {certificate.statements.headline}\n"
        f"  Signed by {certificate.public_key.fingerprint}; checked with `expunge verify`: it [bold]{verdict}[/bold]."
    )


def _tell_promise(report: DemoReport) -> None:
    found = "all are the same, bit for bit" if report.recomputation_agrees else "SOME DIFFER, which is a bug"
    console.print(
        f"\n[bold]What is promised[/bold]: exact deletion\n"
        f"  {report.promise.statement}\n"
        f"  What it does not say. {report.promise.limits}\n"
        f"  Checked: {report.num_recomputed} of {report.num_shards} models were trained again from the records left, "
        f"and compared with those in service: [bold]{found}[/bold]."
    )


def _tell_attack(report: DemoReport) -> None:
    attack = report.attack
    console.print(
        f"\n[bold]What a hostile requester achieves[/bold] (Section 5.1 of the paper: {attack.num_pairs} points, "
        "two copies each, three shards, lookup tables)\n"
        f"  A requester deletes every point that the published labels got right, {attack.accuracy_before:.0%} of them; "
        f"{attack.num_surviving_pairs} pairs survive."
    )
    show_table(
        None,
        ["on the surviving points", "accuracy"],
        [
            ("after the deletions, in service (SISA, or the exact recipe)", f"{attack.accuracy_unlearned:.1%}"),
            ("the same recipe from scratch", f"{attack.accuracy_same_recipe:.1%}"),
            ("full retraining with fresh randomness", f"{attack.accuracy_retrained:.1%}"),
        ],
    )
    console.print(
        "  The models in service are "
        + ("those of the same recipe, bit for bit: " if attack.same_models else "NOT those of the same recipe: ")
        + "no deleted record took part in their training.\n"
        "  But they do not look like a fresh training, because the published labels decided the deletions."
    )
