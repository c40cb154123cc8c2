"""Draw the few-shot curve: python docs/results/few_shot.py RUNS-FOLDER (with few-0, few-10, few-100, few-1000)."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from matplotlib import pyplot

SIZES = (0, 10, 100, 1000)
SHOWN = {"hi": "Hindi", "en": "English", "ar": "Arabic", "ru": "Russian", "tr": "Turkish"}


def read_scores(folder: Path) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over seeds, by language."""
    path = next(folder.glob("scores-panx*.csv"))
    with path.open(encoding="utf-8") as lines:
        return {r["code"]: (float(r["span_f1_mean"]), float(r["span_f1_sd"])) for r in csv.DictReader(lines)}


def main(runs: Path) -> None:
    pyplot.rcParams["svg.hashsalt"] = "crossling"  # the same file from the same numbers
    scores = [read_scores(runs / f"few-{size}") for size in SIZES]
    figure, axis = pyplot.subplots(figsize=(6.4, 3.6))
    for code, name in SHOWN.items():
        means, spreads = zip(*(by_language[code] for by_language in scores), strict=True)
        style = {"linewidth": 2.4} if code == "hi" else {"linewidth": 1.2, "alpha": 0.7}
        axis.errorbar(range(len(SIZES)), means, yerr=spreads, marker="o", capsize=3, label=name, **style)
    axis.set_xticks(range(len(SIZES)), [f"{size:,}" for size in SIZES])
    axis.set_xlabel("Hindi sentences added to 18,000 English ones")
    axis.set_ylabel("span F1, percent")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small")
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "few-shot.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
