"""`expunge demo`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expunge.cli.app import app
from expunge.cli.output import console, progress, say, show_json, show_table
from expunge.core.errors import InputError

if TYPE_CHECKING:
    from expunge.demo import DemoReport


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option(help="Repeat a run exactly (the default is fresh randomness).")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the deployment in this new folder (the default is a temporary one).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the deployment instead, with made-up visitors, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="With --serve: the port; 0: a free one.")
    ] = 8437,
) -> None:
    """Train, predict, delete, add, attack, recompute and certify, on handwritten digits, in under a minute.

    With --serve the deployment is served on this machine, with a page to look at, and keys are printed once.

    Example: `expunge demo --seed 1`

    Example: `expunge demo --serve`
    """
    from expunge.core.randomness import Randomness
    from expunge.demo import run_demo
    from expunge.folder.store import is_vacant
    from expunge.serving.promises import EXACT_STATEMENT

    if folder is not None and not is_vacant(folder):
        raise InputError(f"--folder: {folder} exists already; choose another folder")
    if serve:
        _serve(folder, port, seed=seed, as_json=as_json)
        return
    if not as_json:
        console.print("[bold]What is promised[/bold]: exact deletion")
        for line in EXACT_STATEMENT.in_short:
            say(line)
        console.print()
    rng = Randomness.from_system() if seed is None else Randomness.from_seed(seed)
    with tempfile.TemporaryDirectory(prefix="expunge-demo-") as temporary:
        report = run_demo(folder or Path(temporary) / "digits", rng=rng, progress=progress)
    if as_json:
        show_json(_as_data(report))
    else:
        _tell(report)


_VISITORS_ROWS = 200


def _serve(folder: Path | None, port: int, *, seed: int | None, as_json: bool) -> None:
    """Serve the demonstration's deployment until Ctrl-C."""
    from expunge.audit import load_digits, recompute
    from expunge.core.errors import MissingExtraError
    from expunge.core.randomness import Randomness
    from expunge.demo import create_demo

    try:
        from expunge.service.access import ROLES, KeyFile
        from expunge.service.application import make_app
        from expunge.service.server import Listening, run
        from expunge.service.visitors import Visit
    except ImportError as error:
        raise MissingExtraError(f"--serve needs an extra: pip install 'expunge[service]' ({error})") from None

    if seed is not None or as_json:
        raise InputError("--seed and --json are for the demonstration without --serve")
    data = load_digits()
    with tempfile.TemporaryDirectory(prefix="expunge-demo-") as temporary:
        place = folder or Path(temporary) / "digits"
        with create_demo(place, data, rng=Randomness.from_system(), progress=progress) as deployment:
            deployment.delete([3, 5, 8])
            deployment.delete(subjects=[data.subjects[21]])
        recompute(place, shards="all", record=True)
        keys = {role: KeyFile(place).create(role, note="demonstration")[0] for role in ROLES}
        service = make_app(place, log_requests=False)
        visitors: list[subprocess.Popen[bytes]] = []

        def announce(url: str) -> None:
            console.print(f"\n{place.name} is served at [bold]{url}[/bold]. Open it, and give one of these keys:\n")
            for role, key in keys.items():
                print(f"  {role:<10}{key}", flush=True)
            console.print("\nThey are shown this once. Made-up visitors ask and delete. Ctrl-C ends it all.")
            rows = slice(0, _VISITORS_ROWS)
            known = Visit(
                url=url,
                key=keys["operator"],
                rows=data.X_test[rows].tolist(),
                ids=list(range(100, len(data.y) - _VISITORS_ROWS)),
                labels=data.y_test[rows].tolist(),
            )
            command = [sys.executable, "-m", "expunge.service.visitors"]
            # Ctrl-C is for the service, which then ends them.
            visitors.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
            stream = visitors[0].stdin
            assert stream is not None
            stream.write(known.to_line())
            stream.flush()

        try:
            run(service, Listening(port=port), announce=announce)
        finally:
            for each in visitors:
                each.kill()
                each.wait()


def _as_data(report: DemoReport) -> dict[str, object]:
    data = {field.name: getattr(report, field.name) for field in fields(report)}
    consensus = {each.name: getattr(report.attack_consensus, each.name) for each in fields(report.attack_consensus)}
    return {
        **data,
        "steps": [asdict(step) for step in report.steps],
        "attack_sisa": asdict(report.attack_sisa),
        "attack_exact": asdict(report.attack_exact),
        "attack_consensus": {**consensus, "guarantee": report.attack_consensus.guarantee.to_dict()},
        "promise": asdict(report.promise),
        "guarantee_noisy": report.guarantee_noisy.to_dict(),
        "work_saved": report.work_saved,
        "certificate": json.loads(report.certificate.to_json()),
    }


def _tell(report: DemoReport) -> None:
    _tell_work(report)
    _tell_attack(report)
    _tell_promise(report)


def _tell_work(report: DemoReport) -> None:
    console.print(
        f"[bold]Trained[/bold] {report.num_shards} models on {report.num_records:,} handwritten digits, each on a "
        f"shard of its own, in {report.seconds_to_train:.1f} s. On digits held out, {report.accuracy_before:.1%} of "
        "the answers are right.\n"
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
    say(
        f"Only shards that held a changed record were retrained; the other models are {same}. That saves "
        f"{report.work_saved:.0%} of the training, and {report.accuracy_after:.1%} of the answers are right afterwards."
    )
    say(
        f"Copies of the first deleted digit in the files of the folder: {report.traces_before} before, "
        f"{report.traces_after} after."
    )


def _tell_attack(report: DemoReport) -> None:
    sisa, exact, consensus = report.attack_sisa, report.attack_exact, report.attack_consensus
    console.print("\n[bold]What a hostile requester achieves[/bold]")
    say(
        "The game of Section 5.1 of the paper: every point is there twice, and a model knows only the points of its "
        "own shard. The requester reads the published labels, and has every point deleted that they got right. "
        "How many labels are right at first, and then, on the points that are left: of the models in service, of "
        "training from scratch by the same recipe, and of training from scratch with new secrets?"
    )
    same = ", bit for bit" if exact.same_models else ", OTHER MODELS: a bug"
    rows = [
        ("(a) SISA", 3, sisa.accuracy_before, sisa.accuracy_unlearned, "–", sisa.accuracy_retrained),
        (
            *("(b) exact recipe", 3, exact.accuracy_before, exact.accuracy_unlearned),
            *(f"{exact.accuracy_same_recipe:.0%}{same}", exact.accuracy_retrained),
        ),
        (
            *("(c) consensus", consensus.num_shards, consensus.accuracy_before, consensus.accuracy_in_service),
            *("–", consensus.accuracy_retrained),
        ),
    ]
    show_table(
        None,
        ["scheme", "shards", "at first", "in service", "by the same recipe", "by new secrets"],
        [
            (name, f"{shards:,}", f"{first:.0%}", f"{then:.0%}", recipe, f"{new:.0%}")
            for name, shards, first, then, recipe, new in rows
        ],
    )
    say(
        "(a) is far from a model trained with new secrets: the requester has left only points on which these shards "
        "are wrong. That is why SISA alone promises nothing against such people (Theorem 5.1)."
    )
    say(
        "(b) is as wrong. But it is the very model that its recipe trains on the points left, and that can be checked: "
        "no deleted point has a part in it. The exact promise protects deletion, not accuracy."
    )
    say(
        f"(c) noticed that its shards disagree, and retrained {consensus.models_retrained:,} of "
        f"{consensus.num_shards:,} models with new secrets. What is left is as good as fresh training: "
        f"{consensus.guarantee}. This (α,β,γ) promise costs many shards and full retrainings; `expunge plan` says what "
        f"it takes for your numbers. With noise instead, {report.num_shards} shards may publish "
        f"{_predictions(report.noisy_predictions)}."
    )


def _predictions(count: int) -> str:
    return "one prediction a generation" if count == 1 else f"{count:,} predictions a generation"


def _tell_promise(report: DemoReport) -> None:
    found = "all are the same, bit for bit" if report.recomputation_agrees else "SOME DIFFER, which is a bug"
    verdict = "holds" if report.certificate_holds else "DOES NOT HOLD, which is a bug"
    claimed = "in force" if report.promise.is_claimed else "NOT in force, which is a bug"
    console.print(f"\n[bold]Was the promise kept?[/bold] The exact promise is {claimed}.")
    say(
        f"Recomputed: {report.num_recomputed} of {report.num_shards} models were trained again from the records that "
        f"are left, and compared with those in service: {found}."
    )
    certificate = report.certificate
    say(f"The certificate of the first request: {certificate.statements.headline}")
    say(f"It is signed by {certificate.public_key.fingerprint}. Checked as `expunge verify` does: it {verdict}.")
