"""How far the plan's formula, fed with measured acceptance and step times, is from the measured speed-up.

    trtspec bench SPEC --sweep draft_len --sweep concurrency --report out
    python benchmarks/prediction.py out/bench.json [--within 0.15]

Prints a row a setting: predicted and measured speed-up after the first token, and the gap. Exits with 1 when a gap is
larger than --within. Meant for an idle machine and reports of at least 5 blocks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trt_spec.verify.bench.regression import load_report

FEWEST_BLOCKS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--within", type=float, default=0.15)
    given = parser.parse_args()
    gaps = []
    print(f"{'setting':36}{'predicted':>10}{'measured':>26}{'gap':>8}{'blocks':>8}")
    for point in load_report(given.report).points:
        measured, predicted = point.decode_speedup, point.predicted_decode_speedup
        if measured is None or predicted is None:
            continue
        gaps.append(predicted / measured.value - 1)
        words = f"{measured.value:.2f} ({measured.low:.2f} to {measured.high:.2f})"
        rough = "" if point.blocks >= FEWEST_BLOCKS else " rough"
        print(f"{point.setting.label:36}{predicted:10.2f}{words:>26}{gaps[-1]:8.0%}{point.blocks:8}{rough}")
    if not gaps:
        sys.exit("no setting was both predicted and measured")
    worst = max(map(abs, gaps))
    print(f"largest gap {worst:.0%}")
    sys.exit(worst > given.within)


if __name__ == "__main__":
    main()
