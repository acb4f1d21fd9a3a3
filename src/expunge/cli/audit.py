"""`expunge audit`: play attacks against a scheme, or train a deployment's shards again and compare bits."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from expunge.cli.app import DefaultGroup, Interrupted, app
from expunge.cli.folders import importable_from_here, refuse_inside, settle
from expunge.cli.output import AsJson, Trust, console, page_can_be_written, progress, say, show_json, show_table
from expunge.core.errors import ExpungeError, InputError, ParameterError

if TYPE_CHECKING:
    from expunge.audit import AuditReport, Recomputation

_ALARM_EXIT = 1
_MOST_NAMED = 20


class _AuditGroup(DefaultGroup):
    """`expunge audit SCENARIO …` is short for `expunge audit play SCENARIO …`."""

    default = "play"


_commands = typer.Typer(cls=_AuditGroup, no_args_is_help=True)
app.add_typer(_commands, name="audit")


@_commands.callback()
def audit() -> None:
    """Attack an unlearning scheme, or check a deployment by training shards again.

    `expunge audit lookup --scheme sisa` plays a scenario; `expunge audit play --help` lists scenarios and options.

    `expunge audit recompute churn/` compares the models in service with what the recipe gives.
    """


@_commands.command()
def play(
    scenario: Annotated[str, typer.Argument(help="lookup, label-only, white-box, membership or slow-down.")],
    scheme: Annotated[
        str | None,
        typer.Option(
            help="sisa, majority, exponential, permute-and-flip, laplace, gaussian, confident, consensus, student, "
            "broken, retrain, or your own as module:factory.  [default: sisa, or the deployment's own]"
        ),
    ] = None,
    deployment: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Audit a copy of this deployment's learner, data and settings."),
    ] = None,
    trust: Trust = None,
    trials: Annotated[int, typer.Option(help="How often both arms are played.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Repeat an audit exactly (drawn if left out, and shown).")] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; -1 for all cores. Does not change any number.")] = 1,
    resume: Annotated[
        Path | None, typer.Option(help="Keep finished trials in this file, and go on from there after Ctrl-C.")
    ] = None,
    requester: Annotated[
        str | None,
        typer.Option(help="correct, one-by-one, random-correct, random, add, or your own as module:factory."),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Pairs (lookup), deletions (label-only), canaries (membership), rounds (slow-down)."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="label-only: mnist (from your files) or digits (built in).")] = None,
    learner: Annotated[
        str | None, typer.Option(help="white-box, membership: logistic, tree, nearest, or module:factory.")
    ] = None,
    records: Annotated[int | None, typer.Option(help="How many records are trained on.")] = None,
    setting: Annotated[str | None, typer.Option(help="slow-down: what is published, labels or models.")] = None,
    shards: Annotated[int | None, typer.Option(help="How many shards.")] = None,
    probability: Annotated[float | None, typer.Option(help="The chance that a record is in a shard.")] = None,
    alpha: Annotated[float, typer.Option(help="Noise is as small as a certificate with this alpha allows.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Beta of the certificate, and of the lower bound on alpha.")] = 1e-3,
    gamma: Annotated[float, typer.Option(help="Gamma of the certificate, and of the lower bound on alpha.")] = 1e-3,
    significance: Annotated[float, typer.Option(help="How often a perfect scheme may be rejected.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Of the intervals and of the lower bound on alpha.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as an HTML page.")] = None,
) -> None:
    """Attack an unlearning scheme: are its updated models what full retraining would have given?

    Every trial plays an adaptive sequence of requests against the scheme, and trains afresh on the records that are
    left. The two arms are compared exactly. The certificate's alpha is compared with what the trials prove. The exit
    code is 1 if the trials contradict the certificate.

    Example: `expunge audit lookup --scheme sisa --html audit.html`
    """
    from expunge.audit import AuditRequest, copy_deployment, to_html
    from expunge.audit import audit as run_audit
    from expunge.core.files import Draft
    from expunge.core.guarantee import Guarantee

    if html is not None:
        page_can_be_written(html)
    if deployment is not None:
        refuse_inside(deployment, html, resume)
    request = AuditRequest(
        scenario=scenario,
        scheme=scheme,
        requester=requester,
        data=data,
        learner=learner,
        size=size,
        num_records=records,
        setting=setting,
        num_shards=shards,
        inclusion_probability=probability,
        copy=None if deployment is None else copy_deployment(deployment, trust=trust or (), num_records=records),
        target=Guarantee(alpha, beta, gamma),
    )
    built, made = request.build()
    with nullcontext() if html is None else Draft(html) as page:
        with _explained(resume, scheme, requester, learner):
            report = run_audit(
                built,
                made,
                num_trials=trials,
                seed=seed,
                n_jobs=jobs,
                resume=resume,
                significance=significance,
                confidence=confidence,
                beta=beta,
                gamma=gamma,
                progress=progress,
            )
        if page is not None:
            page.finish(to_html(report, command=_command()).encode())
    if as_json:
        show_json(report.to_dict())
    else:
        _tell(report, html)
    if report.alarm:
        raise typer.Exit(_ALARM_EXIT)


@contextmanager
def _explained(resume: Path | None, *names: str | None) -> Iterator[None]:
    """After Ctrl-C, say what happens to the trials. A failure in the user's own code is one line with its place."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "no trial is kept without --resume" if resume is None else f"the same command goes on from {resume}"
        raise Interrupted(f"interrupted; {kept}") from None
    except (ExpungeError, OSError, MemoryError):
        raise
    except Exception as error:
        own = [name for name in names if name is not None and ":" in name]
        if not own:
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        raise InputError(f"{' or '.join(own)} failed: {type(error).__name__}: {error} ({where})") from error


def _command() -> str:
    """The command as typed, without the program's folder."""
    return shlex.join(["expunge", *sys.argv[1:]])


def _tell(report: AuditReport, html: Path | None) -> None:
    from expunge.audit.report import certificate_words, event_words, p_words, rate_words, requester_words

    names = (escape(name) for name in (report.scenario, report.scheme, report.about))
    console.print("[bold]{}[/bold] against [bold]{}[/bold]: {}.".format(*names))
    console.print(requester_words(report.requester), markup=False)
    arms = [
        ("before any request", report.before),
        ("unlearned", report.unlearned),
        ("retrained (control)", report.retrained),
    ]
    show_table(
        f"Event: {event_words(report)}",
        ["models", "count", "trials", "share", f"{100 * report.confidence:.4g}% interval"],
        [
            (
                name,
                arm.count,
                arm.trials,
                rate_words(arm.rate),
                f"{rate_words(arm.interval[0])} to {rate_words(arm.interval[1])}",
            )
            for name, arm in arms
        ],
        caption=f"seed {report.seed}"
        + (f"; the event was chosen on {report.num_choosing} other trials" if report.num_choosing else ""),
    )
    show_table(
        "Exact sign test between the arms, all trials",
        ["statistic", "unlearned larger", "retrained larger", "equal", "p"],
        [
            (test.statistic, test.unlearned_larger, test.retrained_larger, test.ties, f"{test.p_value:.3g}")
            for test in report.tests
        ],
    )
    if report.known_null is not None:
        known = report.known_null
        console.print(
            f"After retraining the event has probability {known.value:g} by symmetry: control p = "
            f"{known.control_p_value:.3g}, unlearned p = {known.unlearned_p_value:.3g} (exact binomial tests)."
        )
    if report.run_time is not None:
        found = report.run_time
        console.print(
            f"Shards retrained by the next deletion: {found.largest} at most; bound {found.adaptive} at ξ = "
            f"{found.failure:g} (exceeded {found.exceeded.count} times in {found.exceeded.trials}), {found.oblivious} "
            "if chosen in advance."
        )
    console.print(p_words(report), markup=False)
    console.print(certificate_words(report), markup=False)
    console.print(f"[bold]{report.verdict[:1].upper() + report.verdict[1:]}.[/bold]")
    if html is not None:
        console.print(f"The report is in {html}.", markup=False)


@_commands.command()
def recompute(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The deployment's folder, or a bundle of `expunge export --for-audit`.",
            show_default=False,
            file_okay=False,
        ),
    ],
    shards: Annotated[
        str | None,
        typer.Option(metavar="N", help="How many shards to train again, drawn at random; or all.  [default: 20]"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Train every shard again, as --shards all does.")] = False,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The auditor's seed for drawing them: any text.  [default: the system's randomness]"
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw them by a checkpoint of the log that witnesses have signed, instead of a seed."
        ),
    ] = None,
    witness_key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The key of a witness who must have cosigned the checkpoint; repeatable.",
        ),
    ] = None,
    record: Annotated[
        bool | None,
        typer.Option(
            "--record/--no-record",
            help="Write the result into the folder's log and so into later certificates.  [default: at the end, unless "
            "another process has the folder open; with --record it must not be served meanwhile]",
            show_default=False,
        ),
    ] = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Train shards again from the records and the recipe, and compare their bits with the models in service.

    Nothing that an update left behind is used, so the code that made the updates need not be trusted. The result goes,
    signed, into the log of the folder and into later certificates. The exit code is 1 if a shard differs, or if the key
    is not the one that the log committed to.

    Example: `expunge audit recompute churn/ --shards all`
    """
    from expunge.audit import recompute as run
    from expunge.evidence import load_note_key
    from expunge.folder.disclosure import count_shards

    if every and shards is not None:
        raise ParameterError("--all checks every shard, and --shards says how many: give one of them")
    wanted = _number_of_shards("all" if every else "20" if shards is None else shards)
    witnesses = [load_note_key(path) for path in witness_key or ()]
    settle(source)
    if trust:
        importable_from_here()
    num_shards = count_shards(source)
    total = num_shards if wanted == "all" else min(wanted, num_shards)
    try:
        with progress("training shards again", max(1, total)) as advance:
            found = run(
                source,
                shards=wanted,
                seed=seed,
                checkpoint=checkpoint,
                witnesses=witnesses,
                trust=trust or (),
                record=record,
                advance=advance,
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was changed") from None
    if as_json:
        show_json(found.to_dict())
    else:
        _tell_recomputation(found)
    if not found.agrees:
        raise typer.Exit(_ALARM_EXIT)


def _number_of_shards(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ParameterError(f"--shards must be a whole number of at least 1, or all, got {text!r:.80}")
    return int(text)


def _tell_recomputation(found: Recomputation) -> None:
    console.print(found.verdict, style="bold green" if found.agrees else "bold red", markup=False)
    drawn = "" if len(found.checked) == found.num_shards else f", drawn {_how(found)}"
    say(
        f"{found.name}, generation {found.generation}, round {found.round}: {found.num_records:,} records, "
        f"{len(found.checked):,} of {found.num_shards:,} shards trained again{drawn}, {found.num_agreeing:,} agree."
    )
    if found.different:
        named = ", ".join(map(str, found.different[:_MOST_NAMED]))
        more = f" and {len(found.different) - _MOST_NAMED:,} more" if len(found.different) > _MOST_NAMED else ""
        say(f"Shards that differ: {named}{more}. Keep these numbers inside: they depend on the key.")
    say(_key_words(found))
    if found.signed_by is not None:
        say(f"The bundle is signed by the key {found.signed_by}: compare it with the operator's.")
    for name, there, here in found.changed:
        say(f"The models were trained with {name} {there}; here it is {here}.")
    for title, sentences in (("What this shows", found.shows), ("What it does not show", found.does_not_show)):
        console.print(f"\n[bold]{title}[/bold]")
        for sentence in sentences:
            say(sentence)
    if found.is_recorded:
        console.print("\nThe result is in the log, signed, and in every later certificate.")
    elif found.source == "folder":
        why = f": {found.not_recorded}" if found.not_recorded else ""
        console.print(f"\nThe result is not in the log{why}.", markup=False, soft_wrap=True)


def _how(found: Recomputation) -> str:
    if found.checkpoint is not None:
        names = " and ".join(f"by {name} at {at}" for name, at in found.cosigned_by)
        told = f"cosigned {names}" if names else "whose cosignatures were not checked"
        return f"by the checkpoint with the SHA-256 {found.checkpoint}, {told}"
    return "by the system's randomness" if found.seed is None else f"with the seed {found.seed!r}"


def _key_words(found: Recomputation) -> str:
    told = f"(commitment {found.commitment[:16]}…)"
    return {
        "matches": f"The key is the one that the log committed to {told}.",
        "differs": f"The key is not the one that the log committed to {told}.",
        "not recorded": f"The log holds no commitment to the key {told}.",
    }[found.key]
