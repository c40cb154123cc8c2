"""How good a study's choices were, on the terminal and as files."""

from __future__ import annotations

from pathlib import Path

from crossling.report.table import Table
from crossling.report.terminal import out, print_message
from crossling.study.choose import BEST, Judgement


def show_judgement(judgement: Judgement, folder: Path) -> None:
    """Every pick made with all seeds, then each criterion's record beside that of a random pick."""
    picks = tuple(
        (p.task, p.system, p.criterion, p.chosen, f"{p.rank:g} of {p.values}", _points(p.regret))
        for p in judgement.picks
        if p.seed is None
    )
    out.print(Table("", ("task", "system", "criterion", "pick", "rank", "regret"), picks, names=4).to_rich())
    records = tuple(
        (one.criterion, str(one.picks), f"{one.mean_rank:.1f}", _percent(one.share_of_best), _points(one.mean_regret))
        for one in judgement.records
    )
    head = ("criterion", "picks", "mean rank", f"in best {BEST}", "mean regret")
    out.print(Table("", head, records).to_rich())
    print_message(
        "Ranks and regret (points below the best) are by the mean score over languages not trained on and over seeds."
    )
    for note in judgement.notes:
        print_message(f"Note: {note}.")
    print_message(f"written: {judgement.write(folder)}")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _points(regret: float) -> str:
    return f"{100 * regret:.2f}"
