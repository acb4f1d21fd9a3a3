"""Figure 2 (Appendix C.2): the label-only attack on SISA with 1,000 MNIST zeros and ones.

    python lab/experiments/label_only.py                about a minute on 2 cores; needs MNIST (EXPUNGE_DATA)
    python lab/experiments/label_only.py --quick        the built-in digits, seconds; keeps nothing without --out

The same as `expunge reproduce figure2`, and the page label_only.md with label_only.png and label_only.svg beside it.

Expected on MNIST: about 92% test accuracy before deletion (the paper's sample: 91.2%); perfect unlearning, (0,0,0), is
not rejected at 50 and 100 deletions, and rejected at p ≤ 0.05 from 200 on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from expunge_lab.reproduction import draw_figure2, run_label_only, timed

HERE = Path(__file__).parents[1] / "results" / "label_only"
PAGE = """# Label-only attack on SISA (Appendix C.2)

{about}

{table}
![both arms](label_only.svg)

Made by `{command}` on {date}, in {seconds:.0f} s.
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the built-in digits, 40 trials a row")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where the page goes; without it, a quick run is only told")
    options = parser.parse_args()
    report = timed(
        lambda: run_label_only(quick=options.quick, seed=options.seed, jobs=options.jobs),
        command="python lab/experiments/label_only.py" + " --quick" * options.quick + f" --seed {options.seed}",
    )
    print(report.about, report.to_markdown(), sep="\n\n")
    out = options.out or (None if options.quick else HERE)
    if out is not None:
        for drawn in draw_figure2(report, out):
            drawn.replace(out / f"label_only{drawn.suffix}")
        (out / "label_only.md").write_text(PAGE.format(table=report.to_markdown(), **vars(report)), encoding="utf-8")
