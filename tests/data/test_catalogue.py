"""From a name to rows: small files laid out as the catalogue expects them, and the real ones where they are."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from crossling.data import hub
from crossling.data.catalogue import choose_split, describe, list_entries, list_sets, open_data
from crossling.data.declarations import load_declaration
from crossling.data.hub import check_columns
from crossling.data.records import LabelledPair, LabelledText, LinkedPair, ParallelPair
from crossling.data.rows import KINDS
from crossling.data.spec import parse_spec
from crossling.errors import DataError
from crossling.registry import list_kinds

REAL = os.environ.get("CROSSLING_DATA")
HIDDEN = {f"tydiqa:{language}:dev" for language in ("en", "fi", "ko", "ru")}
"""Files whose answers were removed before they were given away."""


def bio(count: int) -> str:
    return "".join(f"w{i}\tO\nx\tB-PER\n\n" for i in range(count))


def conllu(*words: str) -> str:
    return "".join(f"1\t{word}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n" for word in words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data, and no hub to ask."""
    root = tmp_path / "data"
    root.mkdir()
    monkeypatch.setenv("CROSSLING_DATA", str(root))
    monkeypatch.setattr(hub, "_find_outage", lambda endpoint: "no hub here")
    return root


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def open_words(spec: Any, folder: Path, split: str = "") -> list[str]:
    return [row.words[0] for row in open_data(spec, split=split, store=folder / "store")]  # type: ignore[union-attr]


def test_split_in_spec_wins_and_rows_are_sliced(folder: Path) -> None:
    put(folder, "panx/dev-hi.tsv", bio(10))
    put(folder, "panx/train-hi.tsv", "t\tO\n")
    assert open_words("panx:hi", folder, "train") == ["t"]
    assert len(open_words("panx:hi:dev", folder, "train")) == 10
    assert open_words("panx:hi:dev[2:4]", folder) == ["w2", "w3"]
    assert open_words("panx:hi:dev[-1:]", folder) == ["w9"]
    assert open_words("panx:hi", folder, "dev[:1]") == ["w0"]
    rows = open_data("panx:hi:dev[2:4]", store=folder / "store")
    assert (rows.name, rows.language) == ("panx:hi:dev[2:4]", "hi")


def test_smaller_sample_is_part_of_larger_one(folder: Path) -> None:
    put(folder, "panx/train-hi.tsv", bio(50))
    assert open_words({"data": "panx:hi", "limit": 3}, folder, "train") == ["w0", "w1", "w2"]
    small = open_words({"data": "panx:hi", "limit": 5, "sample_seed": 1}, folder, "train")
    large = open_words({"data": "panx:hi", "limit": 20, "sample_seed": 1}, folder, "train")
    other = open_words({"data": "panx:hi", "limit": 5, "sample_seed": 2}, folder, "train")
    assert large[:5] == small != other and len(set(large)) == 20
    assert len(open_words({"data": "panx:hi", "limit": 500}, folder, "train")) == 50


def test_a_skipped_row_in_one_language_leaves_samples_and_slices_parallel(folder: Path) -> None:
    for code, broken in (("hi", ()), ("de", (3, 17, 49))):
        lines = ["x\n\n" if number in broken else f"w{number}\tO\n\n" for number in range(50)]
        put(folder, f"panx/train-{code}.tsv", "".join(lines))

    def read(code: str, limit: int | None = None, split: str = "", **more: Any) -> list[str]:
        table = {"data": f"panx:{code}:train{split}", "on_error": "skip", **more}
        return open_words({**table, **({"limit": limit} if limit else {})}, folder)

    whole, other = (read(code, 20, sample_seed=1) for code in ("hi", "de"))
    replaced = {place for place, word in enumerate(whole) if word in ("w3", "w17", "w49")}
    assert replaced and len(other) == len(set(other)) == 20
    assert {place for place in range(20) if whole[place] != other[place]} == replaced
    assert set(read("de", 10, sample_seed=1)) <= set(other)
    assert len(read("de", sample_seed=1)) == 47
    assert read("de", split="[2:19]") == [word for word in read("hi", split="[2:19]") if word not in ("w3", "w17")]
    assert read("de", split="[-3:]") == ["w47", "w48"]
    inside = [read(code, 5, split="[2:19]", sample_seed=2) for code in ("hi", "de")]
    assert all(a == b or a in ("w3", "w17") for a, b in zip(*inside, strict=True))
    assert read("de", 4) == ["w0", "w1", "w2", "w4"], "a number of rows is what was asked for"


def test_custom_files_are_read(folder: Path, tmp_path: Path) -> None:
    put(folder, "mine.tsv", bio(3) + "broken\n")
    table = {"format": "bio", "path": str(folder / "mine.tsv"), "language": "sw", "limit": 2}
    with pytest.raises(DataError, match=r"mine.tsv:10"):
        open_data(table, store=tmp_path)
    rows = open_data({**table, "on_error": "skip"}, store=tmp_path)
    assert (len(rows), rows.skipped, rows.language) == (2, 1, "sw")


def test_relative_paths_start_from_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "home/sw.tsv", bio(3))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    table = {"format": "bio", "path": "~/sw.tsv", "language": "sw", "limit": 2}
    assert len(open_data(table, store=tmp_path)) == 2
    monkeypatch.chdir(tmp_path / "home")
    assert len(open_data({**table, "path": "sw.tsv"}, store=tmp_path)) == 2
    with pytest.raises(DataError, match=f"es.tsv: there is no such file below {tmp_path / 'home'}"):
        open_data({**table, "path": "es.tsv"}, store=tmp_path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"format": "bi", "language": "sw"}, "Did you mean 'bio'"),
        ({"format": "bio", "path": "x"}, "needs its language"),
        ({"format": "bio", "path": "x", "language": "sw", "limit": 0}, "limit = 0"),
        ({"format": "bio", "path": "x", "language": "sw", "limit": True}, "limit = True"),
        ({"format": "bio", "path": "x", "language": "sw", "on_error": "ignore"}, 'write "raise" or "skip"'),
        ({"format": "bio", "pth": "x", "language": "sw"}, "unknown key 'pth'. Did you mean 'path'"),
        ({"format": "bio", "path": "/nowhere", "language": "sw"}, "/nowhere: there is no such file"),
        ({"format": "bio", "path": "x", "language": "sw", "word": "first"}, "word = 'first'"),
        ({"data": "panx:hi", "limt": 3}, "Did you mean 'limit'"),
        ({"data": 3}, "data = 3"),
        (["panx:hi"], "not list"),
    ],
)
def test_wrong_tables_are_refused(folder: Path, table: Any, message: str) -> None:
    put(folder, "panx/train-hi.tsv", bio(1))
    with pytest.raises(DataError) as error:
        open_data(table, split="train", store=folder / "store")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pnx:de:dev", "Did you mean 'panx'"),
        ("xnli:it:dev", "xnli has no language 'it'"),
        ("xnli:de:tst", "Did you mean 'test'"),
        ("xnli:de", "name a split"),
        ("xnli::dev", "name a language"),
        ("taxinli@7:en:train", "no version '7'"),
        ("tatoeba:de-fr:test", "has en on one side"),
        ("ntrex:en:train", "needs a pair"),
        ("mlqa:context=es,answer=en:dev", "unknown role 'answer'"),
        ("mlqa:context=es:dev", "name the question's language too"),
        ("xnli:de:dev[5:5]", "there are no such rows; the split has 2"),
        ("gold_alignments:fr-zh:test", "has en on one side"),
        ("panx:context=es,question=en:dev", "has one language"),
        ("xnli:context=es,question=en:dev", "unknown role 'context'"),
        ("xnli:premise=de:dev", "name the hypothesis's language too, as in xnli:premise=de,hypothesis=en"),
        ("xnli@mixed:en:dev", "has no language 'en'"),
        ("xnli@mixed:premise=de,hypothesis=en:dev", "has one language"),
    ],
)
def test_wrong_specs_are_refused(folder: Path, spec: str, message: str) -> None:
    put(folder, "xnli/dev-de.tsv", "a\tb\tneutral\nc\td\tneutral\n")
    with pytest.raises(DataError) as error:
        open_data(spec, store=folder / "store")
    assert message in str(error.value)


def test_missing_set_error_says_where_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "panx/dev-de.tsv", bio(1))
    put(folder, "panx/train-de.tsv", bio(1))
    with pytest.raises(DataError) as error:
        open_data("panx:de:test", store=folder / "store")
    for part in (
        str(folder / "panx" / "test-de.tsv"),
        "panx:de:train, panx:de:dev",
        "unimelb-nlp/wikiann",
        "no hub here, and unimelb-nlp/wikiann",
        "CROSSLING_DATA is",
    ):
        assert part in str(error.value)
    with pytest.raises(DataError, match="withdrawn from the hub"):
        open_data("marc:de:train", store=folder / "store")
    monkeypatch.delenv("CROSSLING_DATA")
    with pytest.raises(DataError, match="CROSSLING_DATA is not set; set it to a folder that has marc/train/dataset_de"):
        open_data("marc:de:train", store=folder / "store")
    with pytest.raises(DataError, match="set it to a folder that has xnli/test-de.tsv, xnli/test_labels.txt"):
        open_data("xnli:de:test", store=folder / "store")


def test_default_split_is_an_available_one(folder: Path) -> None:
    put(folder, "panx/dev-de.tsv", bio(1))
    put(folder, "panx/train-de.tsv", bio(1))
    assert choose_split("panx:de") == "dev", "of those available"
    assert choose_split("panx:fr") == "test" and choose_split("panx:de:train[:3]") == "train"
    assert choose_split({"data": "panx:de", "limit": 3}) == "dev" and choose_split({"format": "bio"}) == ""
    assert choose_split("taxinli:en") == "train" and choose_split("phrasebook-ner:hi") == "test"


def test_language_stands_for_one_treebank(folder: Path) -> None:
    put(folder, "ud/UD_German-GSD/de_gsd-ud-dev.conllu", conllu("gsd"))
    put(folder, "ud/UD_German-GSD/de_gsd-ud-test.conllu", conllu("gsd"))
    put(folder, "ud/UD_German-PUD/de_pud-ud-test.conllu", conllu("pud"))
    put(folder, "ud/UD_English-EWT/en_ewt-ud-train.conllu", conllu("ewt"))
    put(folder, "ud/UD_English-GUM/en_gum-ud-train.conllu", conllu("gum"))
    put(folder, "ud/UD_Vietnamese-VTB/vi_vtb-ud-test.conllu", conllu("hai mươi"))
    put(folder, "ud/UD_Czech-CAC/cs_cac-ud-train.conllu", conllu("cac"))
    put(folder, "ud/UD_Czech-PDT/cs_pdt-ud-train.conllu", conllu("pdt"))
    assert open_words("ud:de:test", folder) == ["pud"], "PUD for testing"
    assert open_words("ud:de:dev", folder) == ["gsd"], "the only one with the split"
    assert open_words("ud:de_gsd:test", folder) == ["gsd"]
    assert open_words("ud:en:train", folder) == ["ewt"], "EWT for training"
    assert open_words("ud:vi:test", folder) == ["hai mươi"]
    assert open_data("ud:de_gsd:test", store=folder / "store").language == "de"
    with pytest.raises(DataError, match="ud:cs_cac, ud:cs_pdt"):
        open_data("ud:cs:train", store=folder / "store")
    with pytest.raises(DataError, match=r"universal_dependencies \(configuration hi_hdtb,"):
        open_data("ud:hi:train", store=folder / "store")  # not in the folder; PUD is for testing alone
    with pytest.raises(DataError, match=r"universal_dependencies \(configuration hi_pud,"):
        open_data("ud:hi:test", store=folder / "store")
    with pytest.raises(DataError, match="choose one of ud:es_ancora, ud:es_gsd"):
        open_data("ud:es:train", store=folder / "store")
    assert "ud:en_gum:train" in describe("ud").available


def test_xtreme_treebanks_are_joined_in_order(folder: Path) -> None:
    put(folder, "ud-treebanks-v2.5/UD_English-GUM/en_gum-ud-train.conllu", conllu("gum"))
    put(folder, "ud-treebanks-v2.5/UD_English-EWT/en_ewt-ud-train.conllu", conllu("ewt", "w e"))
    put(folder, "ud-treebanks-v2.5/UD_German-GSD/de_gsd-ud-train.conllu", conllu("gsd"))
    assert open_words("ud@2.5-xtreme:en:train", folder) == ["ewt", "we", "gum"]


def test_every_layout_is_read(folder: Path) -> None:
    put(folder, "xnli/test-de.tsv", "a\tb\nc\td\n")
    put(folder, "xnli/test_labels.txt", "entailment\ncontradictory\n")
    put(folder, "umsab/german/val_text.txt", "gut\nschlecht")
    put(folder, "umsab/german/val_labels.txt", "2\n0")
    put(folder, "marc/train/dataset_de_train.json", '{"stars": "5", "review_body": "Toll"}\n')
    put(folder, "taxinli/taxinli10k.tsv", "id\tprem\thyp\tlabel\n1\ta\tb\tcontradictory\n")
    put(folder, "pawsx/dev-de.tsv", "a\tb\t1\n")
    put(folder, "masakhaner/swa/train.txt", "Asha B-PER\nanaimba O\n")
    put(folder, "sib200/swh_Latn/test.tsv", "index_id\tcategory\ttext\n7\tsports\tAlishinda mbio.\n")
    put(folder, "sib200/nqo_Nkoo/test.tsv", "index_id\tcategory\ttext\n7\tsports\tߒߞߏ\n")
    put(folder, "gold_alignments/roen.src-tgt", "da ! ||| yes !\n")
    put(folder, "gold_alignments/roen.gold", "1-1 2p2\n")
    put(folder, "tatoeba/tatoeba.hin-eng.eng", "one\n")
    put(folder, "tatoeba/tatoeba.hin-eng.hin", "एक\n")
    put(folder, "ntrex/newstest2019-src.eng.txt", "one\r\n")
    put(folder, "ntrex/newstest2019-ref.deu.txt", "eins\r\n")
    put(folder, "tatoeba_challenge/en-hi.tsv", "one\tएक\n")
    put(folder, "flores/de.txt", "eins\n")
    put(folder, "flores/hi.txt", "एक\n")
    put(folder, "nli_pool/train.tsv", "a\tb\tneutral\n")
    for name, asked in (("policyqa_dev", "Why?"), ("squadshifts_reddit", "Who?")):
        entry = {"id": "1", "question": asked, "answers": [{"text": "Asha", "answer_start": 0}]}
        put(
            folder,
            f"qa_pool/{name}.json",
            json.dumps({"data": [{"paragraphs": [{"context": "Asha.", "qas": [entry]}]}]}),
        )
    (folder / "wikimatrix").mkdir()
    with zipfile.ZipFile(folder / "wikimatrix" / "en-hi.txt.zip", "w") as archive:
        archive.writestr("WikiMatrix.en-hi.en", "one\n")
        archive.writestr("WikiMatrix.en-hi.hi", "एक\n")
    store = folder / "store"
    assert [row.label for row in open_data("xnli:de:test", store=store)] == ["entailment", "contradiction"]  # type: ignore[union-attr]
    assert open_data("umsab:de:dev", store=store)[1] == LabelledText("schlecht", "negative")
    assert open_data("marc:de:train", store=store)[0] == LabelledText("Toll", "5")
    assert open_data("taxinli:en:train", store=store)[0] == LabelledPair("a", "b", "contradiction")
    assert open_data("pawsx:de:dev", store=store)[0] == LabelledPair("a", "b", "1")
    assert open_data("masakhaner:sw:train", store=store).labels() == ("B-PER", "O")
    assert open_data("sib200:sw:test", store=store)[0] == LabelledText("Alishinda mbio.", "sports")
    assert open_data("sib200:nqo_Nkoo:test", store=store).language == "nqo"
    assert open_data("gold_alignments:ro-en:test", store=store)[0] == LinkedPair(("da", "!"), ("yes", "!"), ((0, 0),))
    both = open_data({"data": "gold_alignments:en-ro", "links": "all"}, split="test", store=store)
    assert both[0] == LinkedPair(("yes", "!"), ("da", "!"), ((0, 0), (1, 1)))
    assert open_data("tatoeba:en-hi:test", store=store)[0] == ParallelPair("one", "एक")
    assert open_data("tatoeba:hi-en:test", store=store)[0] == ParallelPair("एक", "one")
    assert open_data("ntrex:de-en:train", store=store)[0] == ParallelPair("eins", "one")
    assert open_data("tatoeba_challenge:en-hi:train", store=store)[0] == ParallelPair("one", "एक")
    assert open_data("tatoeba_challenge:hi-en:train", store=store)[0] == ParallelPair("एक", "one")
    assert open_data("flores:hi-de:train", store=store)[0] == ParallelPair("एक", "eins")
    assert open_data("nli_pool:en:train", store=store)[0] == LabelledPair("a", "b", "neutral")
    assert [row.question for row in open_data("qa_pool:en:train", store=store)] == ["Why?", "Who?"]  # type: ignore[union-attr]
    assert len(open_data("qa_pool@squadshifts:en:train", store=store)) == 1
    assert open_data("wikimatrix:hi-en:train", store=store)[0] == ParallelPair("एक", "one")
    with pytest.raises(DataError, match="unknown key 'threshold'"):  # the archive has no scores
        open_data({"data": "wikimatrix:hi-en", "threshold": 1.1}, split="train", store=store)


def test_parallel_sets_are_read_from_several_layouts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = folder / "store"
    with pytest.raises(DataError) as error:
        open_data("wikimatrix:ko-en:train", store=store)
    for part in ("WikiMatrix.en-ko.tsv, or ", "wikimatrix/en-ko.txt.zip", "WikiMatrix/v1/WikiMatrix.en-ko.tsv.gz"):
        assert part in str(error.value)
    put(folder, "wikimatrix/WikiMatrix.en-ko.tsv", "1.1\tone\t하나\n1.02\ttwo\t둘\n")
    assert list(open_data("wikimatrix:ko-en:train", store=store)) == [ParallelPair("하나", "one")]
    loose = {"data": "wikimatrix:en-ko", "threshold": 1.0}
    assert list(open_data(loose, split="train", store=store))[1] == ParallelPair("two", "둘")
    assert describe("wikimatrix").available == ("wikimatrix:en-ko:train",)
    for code, text in (("en", "one\n"), ("fi", "yksi\n")):
        put(folder, f"opus-100-corpus/v1.0/supervised/en-fi/opus.en-fi-dev.{code}", text)
    assert open_data("opus:fi-en:dev", store=store)[0] == ParallelPair("yksi", "one")
    monkeypatch.delenv("CROSSLING_DATA")
    with pytest.raises(
        DataError, match=r"set it to a folder that has wikimatrix/WikiMatrix\.en-ko\.tsv, or wikimatrix/"
    ):
        open_data("wikimatrix:ko-en:train", store=store)


def test_unpublished_row_count_is_warned_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(folder, "panx/dev-sw.tsv", bio(998))
    with caplog.at_level(logging.WARNING):
        open_data("panx:sw:dev[:10]", store=folder / "store")
    assert "panx:sw:dev: found 998 rows where the published set has 1,000" in caplog.text


def test_question_and_context_may_have_different_languages(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    qa = {"id": "1", "question": "Where?", "answers": [{"text": "Arusha", "answer_start": 14}]}
    document = {"data": [{"paragraphs": [{"context": "Asha lives in Arusha.", "qas": [qa]}]}]}
    names = {
        "mlqa/dev-context-es-question-en.json": "mlqa:question=en,context=es:dev",
        "mlqa/dev-context-hi-question-hi.json": "mlqa:hi:dev",
        "mlqa-translate-train/de_squad-translate-train-train-v1.1.json": "mlqa@translate-train:de:train",
        "squad/train-v1.1.json": "squad:en:train",
        "xquad/xquad.de.json": "xquad:de:test",
    }
    for name in names:
        put(folder, name, json.dumps(document))
    for spec in names.values():
        rows = open_data(spec, store=folder / "store")
        assert (len(rows) == 1 and rows.name == str(parse_spec(spec))) or rows.language == "hi"
    assert open_data("mlqa:context=es,question=en:dev", store=folder / "store").language == "es", "the context's"
    assert "question=en,context=es:dev: found 1 rows where the published set has 500" in caplog.text


def test_every_declaration_is_consistent() -> None:
    for name in list_sets():
        base = load_declaration(name)
        for declared in [base, *(load_declaration(name, version) for version in base.versions)]:
            kind = KINDS[declared.kind]
            assert declared.folder or declared.hub or declared.reader, name
            for source in (declared.folder, declared.reader):
                assert source is None or source.format in list_kinds("readers"), name
            if declared.hub is not None:
                check_columns(declared.hub, kind)
            if declared.sides or declared.mixed:
                assert len(declared.sides) == 2 and declared.original, name
                taken = [field for side in declared.sides.values() for field in side]
                assert set(taken) <= {field.name for field in fields(kind)} and len(set(taken)) == len(taken), name
            for key in declared.rows:
                split, _, _ = key.partition(":")
                assert split in declared.splits, (name, key)


def test_description_lists_available_files(folder: Path) -> None:
    put(folder, "xnli/dev-de.tsv", "a\tb\tneutral\n")
    found = describe("xnli")
    assert found.kind == "LabelledPair" and found.task == "nli" and len(found.languages) == 15
    assert found.rows["test"] == 5010 and found.hub == "facebook/xnli" and found.available == ("xnli:de:dev",)
    assert {"ud", "panx", "phrasebook-parallel", "marc"} <= set(list_sets())
    assert {("ud", "2.5-xtreme"), ("mlqa", "translate-train"), ("xnli", ""), ("xnli", "mixed")} <= set(list_entries())
    assert describe("xquad").roles == ("context", "question") and describe("xnli", "mixed").roles == ()
    assert describe("xnli", "mixed").available == (), "the English file is not there"
    put(folder, "xnli/dev-en.tsv", "a\tb\tneutral\n")
    assert describe("xnli", "mixed").available == ("xnli@mixed:de:dev",)


def test_phrasebook_sets_need_no_files(tmp_path: Path) -> None:
    for name in (name for name in list_sets() if name.startswith("phrasebook-")):
        language = "en-hi" if name == "phrasebook-parallel" else "hi"
        rows = open_data({"data": f"{name}:{language}", "rows": 20}, split="dev", store=tmp_path)
        assert len(rows) == 20 and rows.kind.__name__ == describe(name).kind
        again = open_data({"data": f"{name}:{language}", "rows": 20}, split="dev", store=tmp_path / "other")
        assert list(again) == list(rows) and again.fingerprint == rows.fingerprint


@pytest.mark.skipif(not REAL, reason="CROSSLING_DATA is not set")
@pytest.mark.parametrize("name", list_sets())
def test_real_files_have_published_row_counts(name: str, tmp_path: Path) -> None:
    declared = load_declaration(name)
    available = describe(name).available
    if not available:
        pytest.skip(f"nothing of {name} in {REAL}")
    for spec in available[:40]:
        if spec in HIDDEN:
            with pytest.raises(DataError, match="hidden_answers"):
                open_data(spec, store=tmp_path)
            continue
        rows = open_data(spec, store=tmp_path)
        expected = declared.expected_rows(parse_spec(spec))
        if name == "ebible":
            assert 28_000 < len(rows) < 31_100
        else:
            assert (len(rows), rows.skipped) == (expected, 0), spec


@pytest.mark.parametrize("place", ["pawsx/x-final", "x-final"])
def test_official_release_of_pawsx_is_read_as_it_unpacks(folder: Path, place: str) -> None:
    head = "id\tsentence1\tsentence2\tlabel\n"
    put(folder, f"{place}/de/dev_2k.tsv", f'{head}1\t"eins\tzwei"\t0\n2\tdrei\tvier\t1\n')
    put(folder, f"{place}/de/translated_train.tsv", f"{head}1\ta\tb\t1\n")
    put(folder, f"{place}/en/train.tsv", f"{head}1\tone\ttwo\t0\n")
    store = folder / "store"
    assert list(open_data("pawsx:de:dev", store=store)) == [
        LabelledPair('"eins', 'zwei"', "0"),
        LabelledPair("drei", "vier", "1"),
    ]
    assert open_data("pawsx:de:train", store=store)[0] == LabelledPair("a", "b", "1")
    assert open_data("pawsx:en:train", store=store)[0] == LabelledPair("one", "two", "0")
    assert set(describe("pawsx").available) == {"pawsx:de:train", "pawsx:de:dev", "pawsx:en:train"}


def test_training_rows_of_pawsx_whose_translation_failed_are_left_out(folder: Path) -> None:
    head = "id\tsentence1\tsentence2\tlabel\n"
    whole = [f"{number}\ta{number}\tb{number}\t1\n" for number in range(6)]
    put(folder, "x-final/en/train.tsv", head + "".join(whole))
    put(folder, "x-final/zh/translated_train.tsv", head + "".join(["0\t\t\t0\n", whole[1], "2\ta2\t\t1\n", *whole[3:]]))
    put(folder, "x-final/zh/dev_2k.tsv", f"{head}1\ta\t\t0\n")
    store = folder / "store"
    rows = open_data("pawsx:zh:train", store=store)
    assert ([pair.first for pair in rows], rows.skipped) == (["a1", "a3", "a4", "a5"], 2)
    assert [pair.first for pair in open_data("pawsx:zh:train[3:]", store=store)] == ["a3", "a4", "a5"]
    for data in ({"data": "pawsx:zh:train", "on_error": "raise"}, "pawsx:zh:dev"):
        with pytest.raises(DataError, match="is empty; fix the row"):
            open_data(data, store=store)


def test_names_of_custom_sides_must_fit_the_languages(tmp_path: Path) -> None:
    (tmp_path / "news.en").write_text("one\n", encoding="utf-8")
    (tmp_path / "news.sw").write_text("moja\n", encoding="utf-8")
    files = {"source": str(tmp_path / "news.en"), "target": str(tmp_path / "news.sw")}
    table = {"format": "parallel", "language": "en-sw", **files}
    assert open_data(table, store=tmp_path).name == f"{files['source']} and {files['target']}"
    with pytest.raises(DataError, match=r"by their names they are sw and en.*en first; exchange the files, or write"):
        open_data({**table, "source": files["target"], "target": files["source"]}, store=tmp_path)
