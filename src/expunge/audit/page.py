"""The audit as one HTML file that a privacy officer can read. It has no scripts and loads nothing from other places.

The drawings are SVG inside the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from expunge.audit.report import (
    ARMS,
    ArmCount,
    AuditReport,
    certificate_words,
    event_words,
    p_words,
    rate_words,
    requester_words,
)
from expunge.core.html import document, escape
from expunge.core.version import __version__

WIDTH = 640
_LEFT, _RIGHT, _ROW, _TOP = 24, 24, 52, 10
_NAME = 20  # the height of a row's name, above the drawing; it must be readable on a phone, where letters are enlarged
COLOURS = {"before": "#7a7a7a", "unlearned": "#d0493a", "retrained": "#2f7bc2"}


def interval_plot(rows: Sequence[tuple[str, str, float, float, float]], *, label: str) -> str:
    """Draw estimates with intervals on a scale from 0 to 1; a row is (name, colour, low, middle, high)."""
    height = _TOP + _ROW * len(rows) + 40
    parts = [_scale(height - 34, [0.0, 0.25, 0.5, 0.75, 1.0], 0.0, 1.0)]
    for place, (name, colour, low, middle, high) in enumerate(rows):
        y = _TOP + _ROW * place + _NAME + 12
        parts += [
            _text(_LEFT, y - 14, name),
            _line(_x(low, 0, 1), y, _x(high, 0, 1), y, colour, width=3),
            _line(_x(low, 0, 1), y - 6, _x(low, 0, 1), y + 6, colour, width=2),
            _line(_x(high, 0, 1), y - 6, _x(high, 0, 1), y + 6, colour, width=2),
            f'<circle cx="{_x(middle, 0, 1):.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>',
        ]
    return _picture(parts, height, label)


def histogram_plot(arms: Mapping[str, NDArray[np.float64]], *, cut: float | None, label: str) -> str:
    """Draw how often each value of a statistic was seen, one row for each arm, and the cut-off as a dashed line."""
    values = np.concatenate([arm[np.isfinite(arm)] for arm in arms.values()])
    if len(values) == 0:
        return _picture([_text(_LEFT, 30, "the statistic was never defined")], 50, label)
    low, high = _limits(values, cut)
    edges = np.linspace(low, high, 41)
    row, top = 100, _TOP + _NAME  # room above the rows for the name of the line
    height = top + row * len(arms) + 40
    parts = [_scale(height - 34, _ticks(low, high), low, high)]
    for place, (name, arm) in enumerate(arms.items()):
        base = top + row * (place + 1) - 6
        seen = arm[np.isfinite(arm)]
        parts.append(_text(_LEFT, base - row + _NAME + 2, name if len(seen) else f"{name}: never defined"))
        parts.append(_line(_LEFT, base, WIDTH - _RIGHT, base, "#999999"))
        counts, _ = np.histogram(seen, bins=edges)
        tallest = max(1, int(counts.max()))
        for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
            if count:
                size = (row - 2 * _NAME) * count / tallest
                x, width = _x(left, low, high), _x(right, low, high) - _x(left, low, high)
                parts.append(
                    f'<rect x="{x:.1f}" y="{base - size:.1f}" width="{max(1.0, width - 0.6):.1f}" '
                    f'height="{size:.1f}" fill="{COLOURS.get(name.split()[0], "#555555")}"/>'
                )
    if cut is not None and math.isfinite(cut):
        x = _x(cut, low, high)
        parts.append(_line(x, _TOP, x, height - 40, "currentColor", dash=True))
        is_right = x > WIDTH - 120
        parts.append(_text(x - 4 if is_right else x + 4, _TOP + 10, "cut-off", anchor="end" if is_right else "start"))
    return _picture(parts, height, label)


def alpha_plot(lower: float, certified: float, *, label: str) -> str:
    """Draw the lower bound on α and the certificate's α on one scale."""
    finite = [value for value in (lower, certified) if math.isfinite(value)]
    high = max(1.0, 1.15 * max(finite))
    height = _TOP + 2 * _ROW + 40
    parts = [_scale(height - 34, _ticks(0.0, high), 0.0, high)]
    rows = [
        ("shown by the trials: at least", lower, COLOURS["unlearned"]),
        ("certified: at most", certified, COLOURS["retrained"]),
    ]
    for place, (name, value, colour) in enumerate(rows):
        y = _TOP + _ROW * place + _NAME + 12
        parts.append(_text(_LEFT, y - 14, name))
        if math.isfinite(value):
            x = _x(value, 0.0, high)
            parts.append(_line(_LEFT, y, x, y, colour, width=6))
            parts.append(_text(x + 8, y + 4, f"{value:.3g}"))
        else:
            parts.append(_text(_LEFT + 4, y + 6, "nothing is certified"))
    return _picture(parts, height, label)


def _limits(values: NDArray[np.float64], cut: float | None) -> tuple[float, float]:
    seen = [float(values.min()), float(values.max())]
    if cut is not None and math.isfinite(cut):
        seen.append(cut)
    low, high = min(seen), max(seen)
    margin = 0.03 * (high - low) or 0.5 * (abs(high) or 1.0)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 6)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)


def _scale(y: float, ticks: Sequence[float], low: float, high: float) -> str:
    marks = [_line(_LEFT, y, WIDTH - _RIGHT, y, "currentColor")]
    for tick in ticks:
        x = _x(tick, low, high)
        marks += [_line(x, y, x, y + 5, "currentColor"), _text(x, y + 20, f"{tick:.6g}", anchor="middle", size=11)]
    return "".join(marks)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1, dash: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashes}/>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def _picture(parts: Sequence[str], height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>'
    )


STYLE = """
.verdict { padding: .8em 1em; border-left: 6px solid; margin: 1em 0; }
.fine { border-color: var(--good); background: var(--good-back); }
.found { border-color: var(--wait); background: var(--wait-back); }
.alarm { border-color: var(--bad); background: var(--bad-back); }
table { width: auto; } td.n, th + th { text-align: right; padding-left: 1rem; }
th, td.n { overflow-wrap: normal; }
svg { width: 100%; height: auto; max-width: 42em; } svg text { fill: currentColor; }
.small { color: var(--soft); font-size: .9em; }
@media (max-width: 40em) { svg text { font-size: 22px; }
  td, th { padding: .25em .4em .25em 0; } td.n, th + th { padding-left: 0; } }
@media print { svg, .verdict { break-inside: avoid; }
  .verdict, rect { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
_NAMES = {
    "before": "before any request",
    "unlearned": "unlearned (updated models)",
    "retrained": "retrained from scratch",
}


def to_html(report: AuditReport, *, command: str = "") -> str:
    """Write an audit's report as one HTML page that stands alone.

    Parameters
    ----------
    report
        What the audit found.
    command
        The command that made it, for the last section.

    Returns
    -------
    str
        The page.

    Examples
    --------
    >>> from expunge.audit import audit, lookup_scenario, make_scheme
    >>> scenario = lookup_scenario(num_pairs=10)
    >>> page = to_html(audit(scenario, make_scheme("sisa", scenario), num_trials=10, seed=1))
    >>> "Audit: sisa under the lookup attack" in page
    True
    """
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
    return document(title, "\n".join(sections), style=STYLE)


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
        f"<p>This was repeated {len(report.trials)} times with fresh randomness. Each time the models were updated as "
        "the requester asked, and other models were trained from scratch on the records that were left. If deleting "
        "works perfectly, no test can tell the two apart.</p>"
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
    cells = (str(count.count), str(count.trials), rate_words(count.rate), f"{rate_words(low)} to {rate_words(high)}")
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
        "<p>The promise: every event is at most e<sup>α</sup> times as likely in the updated models as in retrained "
        f"ones, plus β = {report.beta:g}, except with probability γ = {report.gamma:g}.</p>"
        + alpha_plot(report.alpha_lower, report.alpha_certified, label="lower bound on alpha and certified alpha")
        + f'<p class="small">The lower bound is wrong with probability at most {1 - report.confidence:.3g}. '
        + (
            f"The cut-off was chosen on the first {report.num_choosing} trials, which were then left out; "
            f"{report.num_events} cut-offs were tried on the others, and the bound accounts for that.</p>"
            if report.num_choosing
            else "The event was fixed in advance.</p>"
        )
    )


def _run_time(report: AuditReport) -> str:
    found = report.run_time
    assert found is not None
    return (
        "<h2>How slow can a requester make deletions?</h2>"
        "<p>A deletion retrains every shard that holds the record. With every requester there are at most "
        f"{found.adaptive} such shards, except with probability {rate_words(found.failure)}; at most {found.oblivious} "
        f"if records are chosen in advance. The largest number seen was {found.largest}; more than {found.adaptive} "
        f"were seen in {found.exceeded.count} of {found.exceeded.trials} trials.</p>"
    )


def _reading(report: AuditReport) -> str:
    return (
        "<h2>How to read this</h2><ul>"
        "<li>A difference that was found is proof, up to the stated chance of error. If none was found, that does not "
        "prove that there is none: another attack, or more trials, may find one.</li>"
        f"<li>A scheme that unlearns perfectly is still rejected here with a chance of at most "
        f"{report.significance:g}, by accident.</li>"
        "<li>The certificate promises that α is at most its number, against every requester. If the trials show a "
        "larger one, the certificate or the software is wrong. That is the alarm.</li>"
        "<li>The audit is about the scheme with these data and this learner. It is not about the records elsewhere "
        "(backups, logs, answers that were given before).</li></ul>"
    )


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _repeat(report: AuditReport, command: str) -> str:
    settings = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(_short(value))}</td></tr>"
        for name, value in report.parameters.items()
    )
    guarantee = "" if math.isinf(report.alpha_certified) else f"<p>Certificate: {escape(str(report.guarantee))}.</p>"
    typed = f"<p><code>{escape(command)}</code></p>" if command else ""
    return (
        f"<h2>To repeat it</h2>{typed}{guarantee}<table>{settings}"
        f"<tr><td>trials</td><td>{len(report.trials)}</td></tr><tr><td>seed</td><td>{report.seed}</td></tr>"
        f"<tr><td>expunge</td><td>{escape(__version__)}</td></tr></table>"
    )
