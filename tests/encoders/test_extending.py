"""Larger encoders: what is added, that all else stays as it was, and that what comes after reads them."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerFast

import crossling
from crossling.cli import main as cli
from crossling.encoders import extending
from crossling.encoders.encoder import Encoder
from crossling.encoders.extending import Extended, extend_on
from crossling.encoders.loading import load_encoder
from crossling.encoders.masked_word_head import load_head
from crossling.encoders.new_subwords import count_words, extend_tokenizer
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.encoders.trimming import trim_on
from crossling.errors import ArtefactError, DataError, EncoderError, StorageError, UserError
from tiny import FAMILIES, save_tiny, save_with_head, tiny_tokenizer
from tiny_blocks import write_tiny_blocks

KINDS = ("bert", "xlm-r", "modernbert")
HINDI = """\
किताब किताबें लडका लडके कमल कमला कमल। पानी पानी, बहन बहनें बहन किताब लडके बहनें
नमक नमक पानी London लडका कमल किताबें कमला लडकी लडकी नमक बहनें लडकी किताब पानी
"""
ENGLISH = ["the cat sleeps in London", "the dogs eat fish, not walking", "не кошка 我是学生", "[MASK] </s> ##s"]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def extend(tmp_path: Path, family: str, text: str = HINDI, *, pieces: int = 8, **sizes: Any) -> tuple[Any, ...]:
    """A tiny encoder, the same with subwords for a text, and the report of the extension."""
    folder = save_tiny(tmp_path / "old", family, **sizes)
    report = extend_on(str(folder), write(tmp_path / "text.txt", text), pieces=pieces, out=tmp_path / "new")
    return load_encoder(str(folder)), load_encoder(str(tmp_path / "new")), report


def table_of(encoder: Encoder) -> torch.Tensor:
    weight: torch.Tensor = encoder.model.get_input_embeddings().weight
    return weight.detach()


def encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def new_ids(old: Any, new: Any) -> list[int]:
    return sorted(set(new.get_vocab().values()) - set(old.get_vocab().values()))


def cut_piece(tokenizer: Any, piece: str) -> list[int]:
    """What the old tokenizer makes of the text in a piece, found slowly: the longest first within a word."""
    if not piece.startswith("##"):
        return [token.id for token in tokenizer.backend_tokenizer.model.tokenize(piece)]
    vocabulary, rest, found = tokenizer.get_vocab(), piece[2:], []
    while rest:
        size = next(n for n in range(len(rest), 0, -1) if "##" + rest[:n] in vocabulary)
        found.append(vocabulary["##" + rest[:size]])
        rest = rest[size:]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_new_rows_are_the_mean_of_their_parts_and_old_ones_keep_their_bits(family: str, tmp_path: Path) -> None:
    old, new, report = extend(tmp_path, family)
    before, after = old.tokenizer.get_vocab(), new.tokenizer.get_vocab()
    assert before.items() <= after.items()
    added = new_ids(old.tokenizer, new.tokenizer)
    assert added == list(range(len(before), len(before) + 8)) and report.characters + report.merges == 8
    assert new.vocabulary == new.model.config.vocab_size == max(old.vocabulary, len(after)) == report.rows[1]
    assert torch.equal(table_of(new)[: len(before)], table_of(old)[: len(before)])
    for index in added:
        parts = cut_piece(old.tokenizer, new.tokenizer.convert_ids_to_tokens(index))
        assert len(parts) > 1
        assert torch.equal(table_of(new)[index], table_of(old)[parts].mean(dim=0))
    for name, tensor in old.model.state_dict().items():
        if "word_embeddings" not in name and "tok_embeddings" not in name:
            assert torch.equal(tensor, new.model.state_dict()[name])


@pytest.mark.parametrize("family", KINDS)
def test_text_gets_fewer_subwords_and_other_text_is_unchanged(family: str, tmp_path: Path) -> None:
    old, new, report = extend(tmp_path, family)
    for line in HINDI.splitlines():
        before, after = encode(old.tokenizer, line), encode(new.tokenizer, line)
        assert len(after) < len(before) and set(after) & set(new_ids(old.tokenizer, new.tokenizer))
        assert old.tokenizer.decode(before) == new.tokenizer.decode(after)
        assert new.tokenizer.decode(encode(new.tokenizer, new.tokenizer.decode(after))) == new.tokenizer.decode(after)
    for line in ENGLISH:
        assert old.tokenizer(line)["input_ids"] == new.tokenizer(line)["input_ids"]
        assert old.tokenizer(line, "a")["input_ids"] == new.tokenizer(line, "a")["input_ids"]
    assert report.after.fertility < report.before.fertility and report.after.density > report.before.density
    for name in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"):
        assert getattr(new.tokenizer, name) == getattr(old.tokenizer, name)


@pytest.mark.parametrize("family", ["xlm-r", "modernbert"])
def test_new_tokenization_joins_adjacent_old_subwords(family: str, tmp_path: Path) -> None:
    old, new, _ = extend(tmp_path, family, pieces=25)
    parts = {
        index: cut_piece(old.tokenizer, new.tokenizer.convert_ids_to_tokens(index))
        for index in new_ids(old.tokenizer, new.tokenizer)
    }
    random = np.random.default_rng(0)
    words, joined = HINDI.split() + ENGLISH[0].split(), 0
    for _ in range(300):
        text = " ".join(random.choice(words, 3)) + "".join(random.choice(list("कमलतेिा sa"), 9))
        after = encode(new.tokenizer, text)
        assert [part for index in after for part in parts.get(index, [index])] == encode(old.tokenizer, text), text
        joined += not parts.keys().isdisjoint(after)
    assert joined > 250


@pytest.mark.parametrize("family", KINDS)
def test_new_subwords_do_not_cross_words(family: str, tmp_path: Path) -> None:
    text = "कमल, कमल, कमल। कमल। Londonx Londonx 12कमल 12कमल\n" + HINDI * 9
    old, new, _ = extend(tmp_path, family, text, pieces=200)
    subwords = SubwordTokenizer(new.tokenizer)
    pieces = [new.tokenizer.decode([index]) for index in new_ids(old.tokenizer, new.tokenizer)]
    assert not any(set(piece) & set(",।12") or piece.strip().isascii() for piece in pieces)
    # A word has the same pieces in a text and alone.
    alone = subwords.encode_words([["कमल", "पानी"]]).pieces.values.tolist()
    assert [piece for piece in encode(new.tokenizer, " कमल, पानी।") if piece in alone] == alone


@pytest.mark.parametrize("family", ["bert", "xlm-r"])
def test_unwritable_characters_come_first(family: str, tmp_path: Path) -> None:
    old, new, report = extend(tmp_path, family, "ßॐa ßॐa ßॐ aß ॐ\nकमल कमल कमल\n", pieces=7)
    unknown = old.tokenizer.unk_token_id
    assert unknown in encode(old.tokenizer, "ßॐa") and unknown not in encode(new.tokenizer, "ßॐa aß ॐ")
    forms = ["ß", "##ॐ", "##ß", "ॐ"] if family == "bert" else ["ß", "ॐ"]
    assert report.characters == len(forms) and report.merges > 0
    first = len(old.tokenizer)
    assert sorted(new.tokenizer.convert_ids_to_tokens(list(range(first, first + len(forms))))) == sorted(forms)
    for index in range(first, first + len(forms)):
        assert torch.equal(table_of(new)[index], table_of(old)[unknown])
    assert report.before.unknown_words > 0.5 and report.after.unknown_words == 0
    few = extend_on(str(tmp_path / "old"), tmp_path / "text.txt", pieces=2, out=tmp_path / "few")
    assert (few.characters, few.merges) == (2, 0)


def test_new_inner_character_starts_from_initial_one(tmp_path: Path) -> None:
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a"])}
    tokenizer = build_wordpiece(vocabulary)
    extension, new = extend_tokenizer(tokenizer, Counter({"ab": 2, "aab": 3}), count=1)
    assert [(piece.text, piece.character) for piece in new] == [("##b", True)]
    assert extension.parts == ((vocabulary["b"],),)


def build_wordpiece(vocabulary: dict[str, int]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


def test_longer_subword_makes_no_word_unknown() -> None:
    # With the join abc, abcd would begin with it and have nothing left to write the d with.
    pieces = ["[PAD]", "[UNK]", "ab", "##c", "##cd", "##a", "##b", "d"]
    tokenizer = build_wordpiece({piece: index for index, piece in enumerate(pieces)})
    words = count_words(tokenizer, ["abc abc abc abc abc abcd"])
    extension, new = extend_tokenizer(tokenizer, words, count=2)
    assert [piece.text for piece in new] == ["##d", "abc"] and extension.parts == ((7,), (2, 3))
    larger = Tokenizer.from_str(json.dumps(extension.settings))
    assert larger.encode("abc abcd").tokens == ["abc", "abc", "##d"]


def test_merge_that_lengthens_other_words_is_dropped() -> None:
    pieces = ["[PAD]", "[UNK]", "ab", "##c", "##cdef", "##d", "##e", "##f"]
    tokenizer = build_wordpiece({piece: index for index, piece in enumerate(pieces)})
    words = count_words(tokenizer, ["abc abc"] + ["abcdef"] * 5)
    _, new = extend_tokenizer(tokenizer, words, count=1)
    assert "abc" not in [piece.text for piece in new]
    more = count_words(tokenizer, ["abc"] * 20 + ["abcdef"] * 5)
    assert [piece.text for piece in extend_tokenizer(tokenizer, more, count=1)[1]] == ["abc"]


def test_most_frequent_pair_is_merged_first_and_steps_to_longer_merges_are_left_out() -> None:
    tokenizer = tiny_tokenizer("xlm-r")
    words = Counter({"▁कमल": 50, "▁बहन": 20, "▁नमक": 3, "▁मकान": 1})
    pairs: Counter[str] = Counter()
    for word, times in words.items():
        for left, right in pairwise(word):
            pairs[left + right] += times
    _, new = extend_tokenizer(tokenizer, words, count=1)
    assert pairs[new[0].text] == max(pairs.values()) == 50
    _, new = extend_tokenizer(tokenizer, words, count=50)
    # Of the steps to ▁कमल and ▁बहन nothing is left, and what occurs once is not learnt.
    assert [piece.text for piece in new if len(piece.text) > 2] == ["▁कमल", "▁बहन", "▁नमक"]
    assert len(new) <= 4


@pytest.mark.parametrize("kind", ["BPE", "Unigram", "WordPiece"])
def test_added_tokens_keep_their_ids(kind: str) -> None:
    signs = ["a", "b", "c", "▁", "##b", "##c", "[UNK]"]
    ids = {sign: index for index, sign in enumerate(signs)}
    build: dict[str, Any] = {
        "BPE": lambda: models.BPE(ids, [], unk_token="[UNK]"),
        "Unigram": lambda: models.Unigram([(sign, -1.0 - index) for sign, index in ids.items()], 6, False),
        "WordPiece": lambda: models.WordPiece(ids, unk_token="[UNK]"),
    }
    backend = Tokenizer(build[kind]())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken("[PAD]", special=True), AddedToken("[MASK]", special=True)])
    assert backend.token_to_id("[MASK]") == 8  # after the model's own
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", mask_token="[MASK]")
    extension, _ = extend_tokenizer(tokenizer, count_words(tokenizer, ["abc abc abc ab"]), count=2)
    larger = Tokenizer.from_str(json.dumps(extension.settings))
    assert larger.token_to_id("[PAD]") == 7 and larger.token_to_id("[MASK]") == 8 and extension.first == 9
    assert larger.encode("abc [MASK]").tokens == ["abc", "[MASK]"]


def test_byte_fallback_characters_get_a_subword() -> None:
    pieces = ["<unk>", "▁", "a", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    extension, new = extend_tokenizer(tokenizer, count_words(tokenizer, ["aक▁aक▁aक"]), count=3)
    assert [piece.text for piece in new] == ["क", "aक", "▁aक"]
    spelt = encode(tokenizer, "क")
    assert len(spelt) == 3 and extension.parts == (tuple(spelt), (2, *spelt), (1, 2, *spelt))
    assert Tokenizer.from_str(json.dumps(extension.settings)).encode("▁aक").tokens == ["▁aक"]


@pytest.mark.parametrize("family", FAMILIES)
def test_masked_word_head_is_extended(family: str, tmp_path: Path) -> None:
    save_with_head(tmp_path / "old", family)
    text = write(tmp_path / "text.txt", HINDI)
    report = extend_on(str(tmp_path / "old"), text, pieces=9, out=tmp_path / "new")
    assert report.head.startswith("kept")
    old, new = load_encoder(str(tmp_path / "old")), load_encoder(str(tmp_path / "new"))
    first, second = load_head(old), load_head(new)
    assert first is not None and second is not None
    known = len(old.tokenizer)
    assert torch.equal(first.bias[:known], second.bias[:known]) and torch.equal(first.dense.weight, second.dense.weight)
    index = new_ids(old.tokenizer, new.tokenizer)[0]
    parts = cut_piece(old.tokenizer, new.tokenizer.convert_ids_to_tokens(index))
    assert torch.equal(second.bias[index], first.bias[parts].mean())
    inputs = old.tokenizer("the cat sleeps", return_tensors="pt")
    ids = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    with torch.no_grad():
        scores = [AutoModelForMaskedLM.from_pretrained(tmp_path / n).eval()(**ids).logits for n in ("old", "new")]
    assert scores[1].shape[-1] == new.vocabulary
    assert torch.allclose(scores[0][..., :known], scores[1][..., :known], atol=1e-5)


def test_untied_masked_word_head_is_left_out_with_message(tmp_path: Path) -> None:
    save_with_head(tmp_path / "old", "bert", tie_word_embeddings=False)
    text = write(tmp_path / "text.txt", HINDI)
    assert "left out" in extend_on(str(tmp_path / "old"), text, pieces=5, out=tmp_path / "new").head
    assert load_encoder(str(tmp_path / "new")).vocabulary > 0


@pytest.mark.parametrize("family", KINDS)
def test_extended_encoder_is_read_by_transformers_and_trimming(family: str, tmp_path: Path) -> None:
    _, new, _ = extend(tmp_path, family)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    model = AutoModel.from_pretrained(tmp_path / "new")
    line = HINDI.splitlines()[0]
    assert tokenizer(line)["input_ids"] == new.tokenizer(line)["input_ids"]
    assert torch.equal(model.get_input_embeddings().weight, table_of(new))
    trim_on(str(tmp_path / "new"), [str(tmp_path / "text.txt")], tmp_path / "trimmed", blocks=False, store=tmp_path)
    smaller = load_encoder(str(tmp_path / "trimmed"))
    assert smaller.vocabulary < new.vocabulary
    assert smaller.tokenizer.tokenize(line) == new.tokenizer.tokenize(line)


def test_encoder_can_be_extended_again_for_another_language(tmp_path: Path) -> None:
    _, once, _ = extend(tmp_path, "xlm-r")
    russian = write(tmp_path / "ru.txt", "собака дом собака дом дома собаки\n")
    extend_on(str(tmp_path / "new"), russian, pieces=12, out=tmp_path / "both")
    both = load_encoder(str(tmp_path / "both"))
    assert once.tokenizer.get_vocab().items() < both.tokenizer.get_vocab().items()
    for line in (HINDI, *ENGLISH):
        assert encode(once.tokenizer, line) == encode(both.tokenizer, line)
    assert len(encode(both.tokenizer, "собака")) == 1


def test_pooler_and_trimmed_mark_are_kept(tmp_path: Path) -> None:
    old, new, _ = extend(tmp_path, "bert", pooler=True)
    hidden = torch.randn(1, 2, 16)
    assert torch.equal(new.pool_cls(hidden), old.pool_cls(hidden))
    text = str(tmp_path / "text.txt")
    trim_on(str(tmp_path / "old"), [text], tmp_path / "trimmed", blocks=False, store=tmp_path)
    extend_on(str(tmp_path / "trimmed"), Path(text), pieces=5, out=tmp_path / "larger")
    assert load_encoder(str(tmp_path / "larger")).tokenizer.init_kwargs["trimmed_from"] == old.identity


def test_extended_four_bit_encoder_is_an_ordinary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crossling.encoders.offline import load_blocks

    write_tiny_blocks(tmp_path / "tiny.bin")
    blocks = load_blocks(tmp_path / "tiny.bin", name="tiny")
    monkeypatch.setattr(extending, "load_encoder", lambda name: blocks if name == "tiny" else load_encoder(name))
    text = write(tmp_path / "text.txt", "tacs tacs tacs 猫猫 猫猫 tacs 猫猫\n")
    report = extend_on("tiny", text, pieces=5, out=tmp_path / "new")
    new = load_encoder(str(tmp_path / "new"))
    assert encode(new.tokenizer, "tacs") == [13]
    assert torch.equal(table_of(new)[:13], table_of(blocks)[:13]) and report.rows == (15, new.vocabulary)
    assert blocks.vocabulary == len(table_of(blocks)) == blocks.model.config.vocab_size == 15  # stays as it was


def test_extended_encoder_can_be_adapted_and_fine_tuned(tmp_path: Path) -> None:
    extend(tmp_path, "xlm-r")
    recipe = f"""
        [encoder]
        name = "{tmp_path / "new"}"
        [[stage]]
        kind = "adapt"
        train = {{ format = "text", path = "{tmp_path / "text.txt"}", language = "hi" }}
        epochs = 2
        lr = 0.01
        held_out = 0
        head = {{ epochs = 1 }}
        [[stage]]
        kind = "finetune"
        task = "ner"
        train = "phrasebook-ner:en:train[:16]"
        dev = "phrasebook-ner:en:dev[:8]"
        epochs = 1
        [[evaluate]]
        on = "phrasebook-ner"
        languages = ["hi"]
        """
    path = write(tmp_path / "recipe.toml", recipe)
    summary = crossling.run(path, out=tmp_path / "run")
    assert [result.language for result in summary.results] == ["hi"]
    model = crossling.load(tmp_path / "run").model
    rows = new_ids(tiny_tokenizer("xlm-r"), model.encoder.tokenizer)
    changed = table_of(model.encoder)[rows] != table_of(load_encoder(str(tmp_path / "new")))[rows]
    assert changed.any()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no text"),
        ("\n \n", "holds no text"),
        (b"a\n\xff\xfe", "text.txt:2: not UTF-8"),
        ("the cat the cat", "has a subword for every word"),
    ],
)
def test_text_without_new_subwords_is_an_error(
    content: str | bytes, message: str, tiny_folder: Path, tmp_path: Path
) -> None:
    text = write(tmp_path / "text.txt", content)
    with pytest.raises(DataError, match=message):
        extend_on(str(tiny_folder), text, pieces=5, out=tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


def test_wrong_arguments_are_refused(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write(tmp_path / "text.txt", HINDI)
    for pieces in (0, -3):
        with pytest.raises(UserError, match="at least 1"):
            extend_on(str(tiny_folder), text, pieces=pieces, out=tmp_path / "new")
    with pytest.raises(DataError, match="no such file"):
        extend_on(str(tiny_folder), tmp_path / "nothing.txt", pieces=5, out=tmp_path / "new")
    with pytest.raises(ArtefactError, match="is not empty"):
        extend_on(str(tiny_folder), text, pieces=5, out=tiny_folder)

    def fill_the_disk(encoder: Encoder, extension: Any, folder: Path) -> Path:
        write(folder, "")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(extending, "write_extended", fill_the_disk)
    with pytest.raises(StorageError, match="disk is full"):
        extend_on(str(tiny_folder), text, pieces=5, out=tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (models.WordLevel({"a": 0, "<unk>": 1}, "<unk>"), "of type WordLevel"),
        (models.BPE({"a": 0, "b</w>": 1, "ab</w>": 2}, [("a", "b</w>")], end_of_word_suffix="</w>"), "end of words"),
    ],
)
def test_unsupported_tokenizers_are_refused(model: Any, message: str) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
    with pytest.raises(EncoderError, match=message):
        extend_tokenizer(tokenizer, Counter({"ab": 3}), count=1)


def test_command_shows_changes_and_next_recipe(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    write(tmp_path / 'हिंदी "1".txt', HINDI)
    command = ["crossling", "extend", str(tiny_folder), "--on", 'हिंदी "1".txt', "--pieces", "500", "--out", "new"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    out = capsys.readouterr().out
    assert "of 500 asked for" in out and "subwords a word" in out and "none; adapt trains a new one" in out
    recipe = tomllib.loads(out[out.index("[encoder]") :])
    assert recipe["encoder"]["name"] == "new" and recipe["stage"][0]["kind"] == "adapt"
    assert recipe["stage"][0]["train"]["path"] == 'हिंदी "1".txt'


@pytest.mark.slow
@pytest.mark.parametrize("code", ["hin", "kor", "fin"])
def test_offline_encoder_gains_on_real_text(code: str, real_data: Path) -> None:
    from crossling.encoders.four_bit_blocks import BlockFile
    from crossling.encoders.offline import build_tokenizer, find_offline_file

    def read(name: str) -> list[str]:
        return (real_data / "ntrex" / f"newstest2019-{name}.txt").read_text(encoding="utf-8").splitlines()

    tokenizer = build_tokenizer(BlockFile(find_offline_file()))
    learnt, held_out = read(f"ref.{code}")[:1500], read(f"ref.{code}")[1500:]
    extension, new = extend_tokenizer(tokenizer, count_words(tokenizer, learnt), count=2000)
    larger = Tokenizer.from_str(json.dumps(extension.settings))
    parts = {extension.first + place: list(own) for place, own in enumerate(extension.parts)}
    sizes = []
    for line in (*held_out, *read("src.eng")):
        before, after = encode(tokenizer, line), larger.encode(line, add_special_tokens=False).ids
        assert [part for index in after for part in parts.get(index, [index])] == before
        sizes.append((len(before), len(after)))
    totals = np.asarray(sizes[: len(held_out)]).sum(axis=0)
    assert totals[1] < 0.95 * totals[0]
    if code != "fin":  # written with other letters
        assert all(before == after for before, after in sizes[len(held_out) :])
    assert isinstance(new, tuple) and len(new) > 1500


def test_facts_report_fewer_subwords_than_requested(tmp_path: Path) -> None:
    _, _, report = extend(tmp_path, "bert", pieces=300)
    assert isinstance(report, Extended)
    assert "of 300 asked for" in report.facts()["subwords added"]
