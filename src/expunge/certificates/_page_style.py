"""How the page looks on a screen, light or dark, and on A4 paper."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --back: #f6f8fa;
  --good: #116329; --good-back: #dafbe1; --wait: #7d4e00; --wait-back: #fff8c5; --bad: #a40e26; --bad-back: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #161b22;
  --back: #0d1117; --good: #7ee787; --good-back: #12351d; --wait: #f2cc60; --wait-back: #3a2d05; --bad: #ffa198;
  --bad-back: #4c1519; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 50rem; margin: 2rem auto; padding: 2.5rem 3rem; background: var(--paper);
  border: 1px solid var(--line); border-top: 6px solid var(--soft); border-radius: 6px; }
.brand { margin: 0; color: var(--soft); letter-spacing: 0.12em; text-transform: uppercase; font-size: 0.8rem; }
h1 { margin: 0.1rem 0 0.8rem; font-size: 2rem; line-height: 1.2; }
h2 { margin: 2.2rem 0 0.6rem; font-size: 1.25rem; border-bottom: 1px solid var(--line); padding-bottom: 0.25rem; }
h3 { margin: 1.6rem 0 0.4rem; font-size: 1rem; }
.state { display: inline-block; padding: 0.1rem 0.7rem; border-radius: 1rem; font-weight: 600; margin-right: 0.4rem;
  border: 1px solid currentColor; }
.state.applied, .state.deployment { color: var(--good); background: var(--good-back); }
.state.pending { color: var(--wait); background: var(--wait-back); }
.state.cancelled { color: var(--soft); }
.warning { border: 2px solid var(--bad); background: var(--bad-back); color: var(--bad); border-radius: 6px;
  padding: 0.2rem 1.2rem; margin-top: 1.4rem; }
.warning h2 { border: 0; margin: 0.7rem 0; font-size: 1.15rem; }
li { margin: 0.35rem 0; }
ul { padding-left: 1.3rem; margin: 0.4rem 0; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: 0.25rem 1.4rem; margin: 0.6rem 0; }
dl > div { display: contents; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 0.8rem 0; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; color: var(--soft); }
th, td { text-align: left; padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; }
.alarms { max-width: 34rem; }
.entries th, .entries td:first-child, .entries td:nth-child(2), .entries td:nth-child(3) { white-space: nowrap; }
.appendix { font-size: 0.88rem; }
.appendix dd, .entries td:last-child, .hashes, code { font-family: ui-monospace, "SFMono-Regular", Consolas, monospace;
  font-size: 0.92em; overflow-wrap: anywhere; }
@media (max-width: 40rem) { main { margin: 0; padding: 1.2rem; border-left: 0; border-right: 0; }
  dl { display: block; } dl > div { display: block; margin-bottom: 0.4rem; }
  .entries { display: block; overflow-x: auto; } .entries td:last-child { min-width: 16rem; } }
@page { size: A4; margin: 18mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --back: #fff; --good: #116329;
    --good-back: #fff; --wait: #7d4e00; --wait-back: #fff; --bad: #a40e26; --bad-back: #fff; }
  body { font-size: 10.5pt; } main { margin: 0; padding: 0; border: 0; max-width: none; }
  h1 { font-size: 20pt; } h2, h3 { break-after: avoid; } li, tr, dl > div, .warning { break-inside: avoid; }
  .appendix { break-before: page; font-size: 9pt; }
}
"""
