"""How good a study's choices were, on the terminal and as files."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from crossling.files import write_atomic
from crossling.report.terminal import out, print_message
from crossling.study.choose import BEST, Judgement
from crossling.study.folder import PICKS


def show_judgement(judgement: Judgement, folder: Path) -> None:
    """Every pick made with all seeds, then each criterion's record beside that of a blind pick."""
    picks = Table("task", "system", "criterion", "pick", "rank", "regret", box=box.SIMPLE_HEAD, pad_edge=False)
    for pick in judgement.picks:
        if pick.seed is None:
            known = (pick.task, pick.system, pick.criterion, pick.chosen, f"{pick.rank} of {pick.values}")
            picks.add_row(*map(escape, known), f"{100 * pick.regret:.2f}")
    out.print(picks)
    records = Table("criterion", "picks", "mean rank", f"in best {BEST}", "mean regret", box=box.SIMPLE_HEAD)
    for record in judgement.records:
        figures = (f"{record.mean_rank:.1f}", f"{100 * record.share_of_best:.0f} %", f"{100 * record.mean_regret:.2f}")
        records.add_row(escape(record.criterion), str(record.picks), *figures)
    out.print(records)
    print_message(
        "Ranks and regret (points below the best) are by the mean score over languages not trained on and over seeds."
    )
    for note in judgement.notes:
        print_message(f"Note: {note}.")
    write_atomic(folder / PICKS, judgement.to_csv())
    print_message(f"written: {folder / PICKS}")
