"""The published figures: tables agree where they repeat figures, and contradictions are computed from them."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from crossling.errors import UserError
from crossling.papers.facts import compare_facts
from crossling.papers.published import PublishedTable, find_table, list_figures, list_tables, parse_value

LANGUAGES = ("en", "de", "es", "fr")


def _say(name: str) -> str:
    return " ".join(find_table(name).contradictions)


def test_every_table_is_complete_and_readable() -> None:
    names = [table.name for table in list_tables()]
    assert names == [
        *(f"layer-fusion/{number}" for number in range(2, 8)),
        *(f"knowledge/{number}" for number in range(2, 7)),
        *(f"adjustment/{number}" for number in range(2, 10)),
    ]
    counts = [len(table.figures) for table in list_tables()]
    assert counts == [51, 12, 18, 28, 4, 9, 32, 24, 168, 48, 56, 24, 12, 66, 20, 16, 16, 14, 12]
    assert all(figure.value is not None for table in list_tables() for figure in table.figures.values())
    assert all(table.holds and not table.holds.endswith(".") for table in list_tables())


def test_figures_are_pictures_without_numbers() -> None:
    assert [figure.name for figure in list_figures()] == [
        *(f"knowledge/figure-{label}" for label in ("1", "A1", "A2", "A3", "A4")),
        *(f"adjustment/figure-{label}" for label in ("1", "2")),
    ]
    assert all(cell.value is None for figure in list_figures() for cell in figure.figures.values())


def test_first_tables_agree_with_what_is_known_of_languages_and_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [(row[2], row[3]) for row in compare_facts("adjustment").rows if row[2] != row[3]] == []
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    (tmp_path / "pawsx").mkdir()
    for code, rows in (("de", 2), ("ko", 3)):
        (tmp_path / "pawsx" / f"test-{code}.tsv").write_text("a\tb\t0\n" * rows, encoding="utf-8")
    ours = {(row[0], row[1]): row[3] for row in compare_facts("layer-fusion").rows}
    assert ours["PAWS-X", "Test"] == "2-3 (2 of 7 languages)"
    assert (ours["XNLI", "Train"], ours["XNLI", "Lang"], ours["NER", "Lang"]) == ("not here", "15", "40")


def test_figure_keeps_its_marks_and_decimals() -> None:
    found = parse_value("71.26**")
    assert (found.value, found.decimals, found.mark) == (71.26, 2, "**")
    assert (parse_value("+0.5").value, parse_value("-0.14").value, parse_value("18").decimals) == (0.5, -0.14, 0)
    assert parse_value("").value is None, "an unreadable figure differs from a missing one"
    squad = find_table("adjustment/8")
    assert squad.value("Original", "SQuAD hi") == squad.value("Original", "SQuAD es") == 89.26, "printed once for four"
    assert ("POS: +FA", "en") not in find_table("knowledge/6").figures, "a cell that the paper leaves out"


def test_unknown_table_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"layer-fusion/8.*Did you mean 'layer-fusion/\d'"):
        find_table("layer-fusion/8")


def test_layer_fusion_agrees_with_itself_where_it_repeats_figures() -> None:
    main, groups, languages, ablation = (find_table(f"layer-fusion/{number}") for number in (2, 3, 4, 5))
    for row, column in ablation.figures:
        task, name = row.split(": ")
        if name == "Baseline" or not name.endswith(("_G", "_L")):
            assert round(ablation.value(row, column), 2) == pytest.approx(
                main.value(name.lower() if name == "Baseline" else name, task), abs=0.011
            )
    for row in ("baseline", "D_10", "D_6"):
        own = "mBERT" if row == "baseline" else row
        germanic = fmean(languages.value(own, code) for code in ("en", "de"))
        assert groups.value(f"PAWS-X: {row}", "avg_enf") == pytest.approx(germanic, abs=0.06), "printed to one decimal"
    for task, count in (("XNLI", 15), ("PAWS-X", 7)):
        for row in (row for row in groups.rows if row.startswith(task)):
            both = 2 * groups.value(row, "avg_enf") + (count - 2) * groups.value(row, "avg_noenf")
            assert both / count == pytest.approx(main.value(row.split(": ")[1], task), abs=0.03)


def test_knowledge_agrees_with_itself_where_it_repeats_figures() -> None:
    scores, enhanced = find_table("knowledge/2"), find_table("knowledge/6")
    for task in ("POS", "NER", "PI", "SA"):
        for code in LANGUAGES:
            assert scores.value(f"{task}: cross-ling", code) == enhanced.value(f"{task}: cross-ling", code)
    heads = find_table("knowledge/4")
    for (row, column), figure in heads.figures.items():
        if column.endswith("Ovlp"):
            assert figure.value is not None and figure.value <= int(row.rpartition("/ ")[2])
        else:
            assert figure.value is not None and -1 <= figure.value <= 1


def test_adjustment_agrees_with_itself_where_it_repeats_figures() -> None:
    nli, ner, questions = (find_table(f"adjustment/{number}") for number in (2, 3, 4))
    sizes, pooling, anchors = (find_table(f"adjustment/{number}") for number in (5, 6, 7))

    def gain(table: PublishedTable, column: str, prefix: str = "") -> float:
        return table.value(f"{prefix}Adjusted", column) - table.value(f"{prefix}Original", column)

    found = {
        "ru": [gain(nli, "ru", "Original XNLI: "), gain(ner, "ru")],
        "hi": [gain(nli, "hi", "Original XNLI: "), gain(ner, "hi")],
    }
    found["ru"] += [gain(questions, f"ru {name}", "One language: ") for name in ("TyDi QA", "XQuAD")]
    found["hi"] += [gain(questions, f"hi {name}", "One language: ") for name in ("MLQA", "XQuAD")]
    assert [sizes.value("30K", column) for column in sizes.columns] == pytest.approx(found["ru"], abs=0.011)
    for table, row in ((pooling, "avg"), (anchors, "all")):
        assert [table.value(row, column) for column in table.columns] == pytest.approx(found["hi"], abs=0.011)


def test_french_is_germanic_in_the_text_alone() -> None:
    said, table = _say("layer-fusion/3"), find_table("layer-fusion/4")
    with_french = fmean(table.value("mBERT", code) for code in ("en", "de", "fr"))
    assert f"{with_french:.2f}" == "89.03" and "89.03" in said
    assert find_table("layer-fusion/3").value("PAWS-X: baseline", "avg_enf") == 89.85
    assert "French" in _say("layer-fusion/4")


def test_the_best_layers_of_the_two_encoders_are_not_the_same() -> None:
    main, other = find_table("layer-fusion/2"), find_table("layer-fusion/7")
    for task in other.columns:
        best = max(main.rows[1:], key=lambda row: main.value(row, task))
        ours, theirs = int(best.removeprefix("D_")), int(other.value("(best layer)", task))
        assert (ours == theirs) == (task == "PAWS-X")
    assert "POS 8 and NER 10, where Table II has NER 8 and POS 10" in _say("layer-fusion/7")


def test_the_gains_are_relative_and_averaged_over_languages() -> None:
    table, said = find_table("knowledge/6"), _say("knowledge/6")
    for task, relative, points in (("PI", "0.38", "0.33"), ("SA", "20.75", "9.25"), ("NER", "12.74", "10.20")):
        before, after = (
            [table.value(f"{task}: {name}", code) for code in LANGUAGES] for name in ("cross-ling", "+combined")
        )
        ratios = [100 * (high - low) / low for low, high in zip(before, after, strict=True)]
        gains = [high - low for low, high in zip(before, after, strict=True)]
        assert (f"{fmean(ratios):.2f}", f"{fmean(gains):.2f}") == (relative, points)
        assert relative in said and points in said
    assert not any(row.startswith("POS: +combined") for row, _ in table.figures), "three tasks, not four"


def test_the_bounds_on_perplexities_are_exceeded() -> None:
    table, said = find_table("knowledge/5"), _say("knowledge/5")
    higher = {}
    for task in ("POS", "NER", "PI", "SA"):
        for code in LANGUAGES:
            cross, multi = (table.value(f"{task}: {name}", code) for name in ("cross-ling", "multi-ling"))
            higher[task, code] = 100 * (cross - multi) / multi
    assert (round(higher["POS", "en"], 2), round(higher["POS", "de"], 2)) == (12.93, 945.33), "the paper's own bounds"
    others = {key: value for key, value in higher.items() if key[1] != "en"}
    assert sum(value > 945.34 for value in others.values()) == 8 and "8 of the 12" in said
    assert round(higher["PI", "de"]) == 2534 and "PI in German is 2,534 %" in said
    assert max(others, key=others.__getitem__) == ("PI", "fr") and f"{max(others.values()):,.0f}" == "3,246"
    assert min(others, key=others.__getitem__) == ("SA", "de") and f"{min(others.values()):.0f}" == "783"
    assert "3,246 %" in said and "783 %" in said
    assert [f"{others['PI', code]:,.0f}" for code in LANGUAGES[1:]] == ["2,534", "1,895", "3,246"]
    assert [f"{others['POS', code]:,.0f}" for code in LANGUAGES[1:]] == ["945", "1,535", "1,200"]
    for task in ("NER", "PI"):
        for code in ("es", "fr"):
            assert _gap(table, task, code) > _gap(table, "POS", code)


def _gap(table: PublishedTable, task: str, code: str) -> float:
    return table.value(f"{task}: cross-ling", code) - table.value(f"{task}: multi-ling", code)


def test_claims_about_attention_heads_contradict_the_table() -> None:
    table, said = find_table("knowledge/4"), _say("knowledge/4")
    for top in (60, 80):
        row = f"POS: multi-ling / {top}"
        assert table.value(row, "NER Ovlp") > table.value(row, "POS Ovlp")
    assert all(
        table.value(f"POS: multi-ling / {top}", "PI Corr") > table.value(f"POS: multi-ling / {top}", "POS Corr")
        for top in (40, 60, 80)
    )
    assert table.value("POS: cross-ling / 60", "NER Ovlp") < table.value("POS: multi-ling / 60", "NER Ovlp")
    pairs = [(f"/ {top}", f"{task} Corr") for top in (40, 60, 80) for task in ("NER", "PI", "SA")]
    higher = sum(table.value(f"POS: cross-ling {a}", b) > table.value(f"POS: multi-ling {a}", b) for a, b in pairs)
    assert higher == 4 and "4 of the 9" in said


def test_claims_about_questions_contradict_the_tables() -> None:
    table, said = find_table("adjustment/4"), _say("adjustment/4")
    across = [key for key in table.figures if "Adjusted" in key[0] and not key[0].startswith("One")]
    better = [
        (row, column)
        for row, column in across
        if table.figures[row, column].mark == "*"
        and table.value(row, column) > table.value(row.replace("Adjusted", "Original"), column)
    ]
    assert len(better) == 6 and "six improvements" in said
    assert ("Question in English: Adjusted", "ru XQuAD") in better
    worse = [
        column
        for column in table.columns
        if table.value("One language: Adjust+continual", column) < table.value("One language: Adjusted", column)
    ]
    assert len(worse) == 5 and "5 of 8" in said
    sizes = find_table("adjustment/5")
    assert max(sizes.rows, key=lambda row: sizes.value(row, "TyDi QA")) == "10K"
    anchors = find_table("adjustment/7")
    for column in ("MLQA", "XQuAD"):
        assert max(anchors.rows, key=lambda row: anchors.value(row, column)) == "[CLS]"
    assert anchors.value("all", "NER") < anchors.value("words", "NER")


def test_claims_about_the_larger_vocabulary_contradict_the_table() -> None:
    table, ner = find_table("adjustment/9"), find_table("adjustment/3")
    gains = [table.value(f"Adjusted by {size}", "XQuAD") - table.value("Original", "XQuAD") for size in ("30K", "100K")]
    assert [f"{gain:.2f}" for gain in gains] == ["0.00", "0.99"]
    assert table.value("Original", "NER") < ner.value("Original", "hi")
    assert table.value("Adjusted by 30K", "NER") < ner.value("Adjusted", "hi")


def test_continual_learning_helps_entities_in_one_language() -> None:
    table = find_table("adjustment/3")
    better = [c for c in table.columns if table.value("Adjust.+continual", c) > table.value("Adjusted", c)]
    assert better == ["ru"] and "Russian (66.27** against 65.49)" in _say("adjustment/3")


@pytest.mark.parametrize("table", list_tables(), ids=lambda table: table.name)
def test_figures_quoted_in_sentences_are_in_the_tables(table: PublishedTable) -> None:
    paper = [one for one in list_tables() if one.paper == table.paper]
    printed = {figure.text.strip("*+-") for one in paper for figure in one.figures.values()}
    quoted = "89.03 945.33 12.93 90.43 11.45 0.38 20.75 0.33 9.25 12.74 10.20 97.0 0.00 0.99"
    sections = "3.4 5.2 5.4"
    for sentence in table.contradictions:
        assert set(re.findall(r"\d+\.\d+", sentence)) <= {*printed, *quoted.split(), *sections.split()}, sentence
