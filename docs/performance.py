"""Draw and tabulate the benchmarks: python docs/performance.py

Reads benchmarks/results/cpu.json and gpu.json, where they are; draws docs/performance.svg, fills the tables of
docs/performance.md (between its markers), and prints them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
FACTS = {"gpu": "GPU", "processor": "CPU", "cores": "cores", "threads": "threads", "precision": "precision"}
FACTS |= {name: name for name in ("python", "torch", "transformers")}
"""What is shown of a machine, and under which name."""
MET, MISSED, FREE, TARGET = "#1f7f6c", "#d97b1f", "#3d7fb5", "#333333"
Results = dict[str, Any]


def main() -> None:
    results = read_results(RESULTS)
    if not results:
        sys.exit(f"{RESULTS}: no cpu.json or gpu.json; run make bench or make bench-gpu first")
    draw(results, DOCS / "performance.svg")
    page = DOCS / "performance.md"
    text = page.read_text(encoding="utf-8")
    for name, found in results.items():
        text = fill(text, name, tabulate(found))
        sys.stdout.write(f"{name}\n\n{tabulate(found)}\n\n")
    page.write_text(fill(text, "figure", "![How many times as fast as each peer](performance.svg)"), encoding="utf-8")


def read_results(folder: Path) -> dict[str, Results]:
    """Each device's rows; results of quick runs are ignored."""
    files = {name: folder / f"{name}.json" for name in ("cpu", "gpu")}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}
    return {name: results for name, results in found.items() if not results["quick"]}


def fill(text: str, name: str, content: str) -> str:
    """The page with the text between two markers replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"docs/performance.md: no markers {begin} and {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def tabulate(results: Results) -> str:
    """Machine, command and a table with a line for each row and peer."""
    machine = ", ".join(
        f"{shown} {results['machine'][name]}" for name, shown in FACTS.items() if name in results["machine"]
    )
    rate = f"{results['matrix_rate'] / 1e12:.3g} Tflop/s of matrix products"
    lines = [f"`{results['command']}` on: {machine}; {rate}.", ""]
    lines += [
        "| | ours | beside | its | ours is | of the limit | target |",
        "| --- | --: | --- | --: | --: | --: | --- |",
    ]
    for row in results["rows"]:
        lines += tabulate_row(row)
    return "\n".join(lines)


def tabulate_row(row: Results) -> list[str]:
    """The first line has the name and our figure; each line has a peer."""
    share = row["share_of_limit"]
    name = f"{row['name']}: {row['what']}"
    own = [f"{show(row['ours'])} {row['unit']}", f"{100 * share:.1f} %" if share is not None else ""]
    targets = [describe_target(row, key) for key in ("value", "limit") if key in row["targets"]]
    lines = []
    for number, peer in enumerate(row["peers"] or {"": None}):
        first = number == 0
        wanted = [*(targets if first else []), *([describe_target(row, peer)] if peer in row["targets"] else [])]
        value = row["peers"].get(peer)
        ratio = f"{row['ratios'][peer]:.2f} x" if peer else ""
        cells = [name, own[0]] if first else ["", ""]
        cells += [peer, show(value) if value is not None else "", ratio, own[1] if first else "", "; ".join(wanted)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def describe_target(row: Results, key: str) -> str:
    """A target in words, and whether it is met."""
    wanted = row["targets"][key]
    words = {"limit": f"{100 * wanted:.0f} % of the limit", "value": f"{show(wanted)} {row['unit']}"}
    met = row["reached"].get(key)
    return f"{words.get(key, f'{wanted:.2f} x')}: {'not judged' if met is None else 'met' if met else '**not met**'}"


def show(value: float) -> str:
    """A figure with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def draw(results: dict[str, Results], path: Path) -> None:
    """A bar for each row and peer: how many times as fast ours is, with a mark where it should be."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "crossling"  # the same file from the same numbers
    pyplot.rcParams["svg.fonttype"] = "none"
    bars = {name: list_bars(found) for name, found in results.items()}
    heights = [max(1, len(some)) for some in bars.values()]
    figure, axes = pyplot.subplots(
        len(bars), 1, figsize=(8.4, 0.9 + 0.3 * sum(heights)), squeeze=False, height_ratios=heights
    )
    for axis, (name, some) in zip(axes[:, 0], bars.items(), strict=True):
        for place, (_, ratio, wanted) in enumerate(some):
            colour = FREE if wanted is None else MET if ratio >= wanted else MISSED
            axis.barh(place, ratio - 1, left=1, color=colour)  # from 1, where both are as fast
            axis.annotate(
                f"{ratio:.2f}", (max(ratio, 1), place), (4, -3), textcoords="offset points", fontsize="x-small"
            )
            if wanted is not None:
                axis.plot([wanted, wanted], [place - 0.45, place + 0.45], color=TARGET, linewidth=1.5)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_yticks(range(len(some)), [label for label, _, _ in some], fontsize="x-small")
        axis.invert_yaxis()
        axis.axvline(1, color=TARGET, linewidth=0.8)
        axis.margins(x=0.1)
        axis.grid(axis="x", which="both", alpha=0.3)
        machine = results[name]["machine"]
        axis.set_title(f"{machine.get('gpu', machine['processor'])}: times as fast as", fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def list_bars(results: Results) -> list[tuple[str, float, float | None]]:
    """Name, ratio and target of each row and peer."""
    return [
        (f"{row['name']} / {peer}", ratio, row["targets"].get(peer))
        for row in results["rows"]
        for peer, ratio in row["ratios"].items()
    ]


if __name__ == "__main__":
    main()
