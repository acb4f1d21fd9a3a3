"""The audit as one HTML file that a privacy officer can read: no scripts, no requests to anywhere."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from expunge._version import __version__
from expunge.audit.report import ARMS, ArmCount, AuditReport
from expunge.audit.svg import COLOURS, alpha_plot, histogram_plot, interval_plot
from expunge.audit.words import certificate_words, chance, event_words, p_words, requester_words

_STYLE = """
body { font: 16px/1.5 sans-serif; color: #1b1b1b; max-width: 46em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
.verdict { padding: .8em 1em; border-left: 6px solid; margin: 1em 0; }
.fine { border-color: #2e7d32; background: #edf7ee; } .found { border-color: #b26a00; background: #fff6e5; }
.alarm { border-color: #b00020; background: #fdecee; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .25em .8em; border-bottom: 1px solid #ddd; }
th { text-align: left; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; max-width: 42em; } code { background: #f3f3f3; padding: 0 .2em; }
.small { color: #555; font-size: .9em; }
@media (max-width: 40em) { svg text { font-size: 22px; } td, th { padding: .25em .4em; } ul { padding-left: 1.2em; }
  td:not(.n) { overflow-wrap: anywhere; } }
@page { size: A4; margin: 18mm; }
@media print { body { font-size: 10.5pt; margin: 0; max-width: none; padding: 0; } svg { max-width: 42em; }
  h2, h3 { break-after: avoid; } svg, li, tr, .verdict { break-inside: avoid; }
  .verdict, rect { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
_NAMES = {
    "before": "before any request",
    "unlearned": "unlearned (updated models)",
    "retrained": "retrained from scratch",
}


def to_html(report: AuditReport, *, command: str = "") -> str:
    """The page. `command` is what was typed, for the last section."""
    title = f"Audit: {report.scheme} under the {report.scenario} attack"
    sections = [
        f"<h1>{escape(title)}</h1>",
        _verdict(report),
        _done(report),
        _probabilities(report),
        _distributions(report),
        _alpha(report),
        *([_run_time(report)] if report.run_time is not None else []),
        _reading(report),
        _repeat(report, command),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def _verdict(report: AuditReport) -> str:
    kind = "alarm" if report.alarm else "found" if report.rejected else "fine"
    return (
        f'<div class="verdict {kind}"><strong>{escape(report.verdict[:1].upper() + report.verdict[1:])}.</strong><br>'
        f"{escape(p_words(report))} {escape(certificate_words(report))}</div>"
    )


def _done(report: AuditReport) -> str:
    shown = "the released labels" if report.setting == "labels" else "every model, whole,"
    return (
        "<h2>What was done</h2>"
        f"<p>{escape(report.about[:1].upper() + report.about[1:])}. {escape(requester_words(report.requester))} "
        f"The requester was shown {shown} and nothing else.</p>"
        f"<p>This was played {len(report.trials)} times with fresh randomness. Each time the models were updated as "
        "the requester asked, and beside that trained from scratch on the records that were left. If deleting works "
        "perfectly, nobody can tell the two apart.</p>"
    )


def _probabilities(report: AuditReport) -> str:
    counts = {"before": report.before, "unlearned": report.unlearned, "retrained": report.retrained}
    rows = [
        (_NAMES[arm], COLOURS[arm], count.interval[0], count.rate, count.interval[1])
        for arm, count in counts.items()
        if count.trials
    ]
    table = "".join(_row(_NAMES[arm], count) for arm, count in counts.items())
    return (
        f"<h2>How often it happened</h2><p>Looked for: <em>{escape(event_words(report))}</em>.</p>"
        + interval_plot(rows, label="probability of the event in each arm, with intervals")
        + "<table><tr><th>models</th><th>times</th><th>of</th><th>share</th>"
        f"<th>{100 * report.confidence:.4g}% interval</th></tr>{table}</table>"
    )


def _row(name: str, count: ArmCount) -> str:
    low, high = count.interval
    cells = (str(count.count), str(count.trials), chance(count.rate), f"{chance(low)} to {chance(high)}")
    return f"<tr><td>{escape(name)}</td>" + "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells) + "</tr>"


def _distributions(report: AuditReport) -> str:
    pictures = []
    for test in report.tests:
        name = test.statistic
        arms = {arm: np.array([getattr(trial, arm)[name] for trial in report.trials]) for arm in ARMS}
        cut = report.event.cut if report.event.statistic == name else None
        pictures.append(
            f"<h3>{escape(name[:1].upper() + name[1:])}</h3>"
            + histogram_plot(arms, cut=cut, label=f"{name}: values in all trials")
            + f'<p class="small">The updated models had the larger value in {test.unlearned_larger} trials, the '
            f"retrained ones in {test.retrained_larger}; equal or undefined in {test.ties}. Exact two-sided sign test: "
            f"p = {test.p_value:.3g}.</p>"
        )
    return "<h2>What was seen in all trials</h2>" + "".join(pictures)


def _alpha(report: AuditReport) -> str:
    return (
        "<h2>How large must α be?</h2>"
        "<p>α is the factor in the promise: whatever anyone looks for is at most e<sup>α</sup> times as likely in the "
        f"updated models, plus β = {report.beta:g}, except with probability γ = {report.gamma:g}.</p>"
        + alpha_plot(report.alpha_lower, report.alpha_certified, label="lower bound on alpha and certified alpha")
        + f'<p class="small">The lower bound is wrong with probability at most {1 - report.confidence:.3g}. '
        + (
            f"The cut-off was chosen on the first {report.num_choosing} trials, which were then left out; "
            f"{report.num_events} cut-offs were tried on the others, and that is paid for.</p>"
            if report.num_choosing
            else "The event was fixed in advance.</p>"
        )
    )


def _run_time(report: AuditReport) -> str:
    found = report.run_time
    assert found is not None
    return (
        "<h2>How slow can a requester make deletions?</h2>"
        f"<p>A deletion retrains every shard that holds the record. At most {found.adaptive} shards are to be expected "
        f"but for a chance of {chance(found.failure)}, whoever chooses; {found.oblivious} if records were chosen "
        f"without looking. The most that were seen: {found.largest}; more than {found.adaptive} in "
        f"{found.exceeded.count} of {found.exceeded.trials} trials.</p>"
    )


def _reading(report: AuditReport) -> str:
    return (
        "<h2>How to read this</h2><ul>"
        "<li>A difference that was found is proof, up to the stated chance of error. That none was found is no proof "
        "of the contrary: another attack, or more trials, may find one.</li>"
        f"<li>A scheme that unlearns perfectly is nevertheless rejected here with a chance of at most "
        f"{report.significance:g}, by accident.</li>"
        "<li>The certificate promises that α is at most its number, against every requester. If the trials show a "
        "larger one, the certificate or the software is wrong: that is the alarm.</li>"
        "<li>The audit speaks of the scheme with these data and this learner, not of the records' safety elsewhere "
        "(backups, logs, answers that were given before).</li></ul>"
    )


def _repeat(report: AuditReport, command: str) -> str:
    settings = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>"
        for name, value in report.parameters.items()
    )
    guarantee = "" if math.isinf(report.alpha_certified) else f"<p>Certificate: {escape(str(report.guarantee))}.</p>"
    typed = f"<p><code>{escape(command)}</code></p>" if command else ""
    return (
        f"<h2>To repeat it</h2>{typed}{guarantee}<table>{settings}"
        f"<tr><td>trials</td><td>{len(report.trials)}</td></tr><tr><td>seed</td><td>{report.seed}</td></tr>"
        f"<tr><td>expunge</td><td>{escape(__version__)}</td></tr></table>"
    )
