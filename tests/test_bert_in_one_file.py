"""examples/bert.py equals the package: ids, examples of pre-training, outputs; test_training.py has twenty losses."""

import ast
import math
import random
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pretraining_reference as reference
import pytest
import torch
import wordpiece_reference as wordpiece
from example_files import EXAMPLES, example
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import edit_tensors, error, our_model, published_model, save_published, vocabulary_tokens
from test_pretraining_batches import SPECIAL, everything, random_documents, rows, shard_of

from bertkit import Tokenizer, collate, load
from bertkit.objectives import Masking, SentencePairs

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "bert_reference"
YOUNG = (  # characters that Unicode 8 lacks or classifies differently
    wordpiece.NOT_CONTROL | wordpiece.NOT_PUNCTUATION | wordpiece.ALSO_PUNCTUATION | wordpiece.NOT_MARK
    | wordpiece.ALSO_MARK | wordpiece.NOT_DECOMPOSED | wordpiece.NOT_ORDERED | wordpiece.YOUNG_CAPITALS.keys()
)  # fmt: skip
CODE_POINTS = filter(lambda char: unicodedata.category(char) not in ("Cn", "Cs"), map(chr, range(sys.maxunicode + 1)))
KNOWN = "".join(char for char in CODE_POINTS if char not in YOUNG)
SENTENCES = ["the cat sat on the mat.", "a dog walked, and walked!", "one two three four five six"]

bert = example("bert")


@pytest.fixture(scope="module", autouse=True)
def one_thread_is_enough(one_thread):
    """Tiny models."""


def test_file_is_short_and_imports_neither_bertkit_nor_transformers() -> None:
    text = (EXAMPLES / "bert.py").read_text()
    assert len(text.splitlines()) <= 500
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"torch", "safetensors"}


# ---- ids


def tokenizers(tokens: list[str], lowercase: bool) -> tuple:
    return bert.Tokenizer(tokens, lowercase=lowercase), Tokenizer.from_vocab(tokens, lowercase=lowercase)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def both(request) -> tuple:
    """The two tokenizers of a vocabulary of every second character, so that words are known and unknown."""
    some = [char for char in KNOWN if unicodedata.category(char)[0] in "LNPSM" and not "\u4e00" < char < "\u9fff"][::2]
    letters = [chr(code) for code in range(0x20, 0x250)]
    entries = dict.fromkeys([*vocabulary_tokens(99), *letters, *some, *(f"##{char}" for char in (*letters, *some))])
    return tokenizers([entry for entry in entries if entry.strip()], request.param)


def assert_same_ids(both: tuple, texts: list[str]) -> None:
    ours, theirs = both
    encodings = theirs.encode_batch(texts, with_offsets=False)
    expected = np.split(encodings.input_ids, encodings.cu_seqlens[1:-1])
    for text, ids in zip(texts, expected, strict=True):
        assert bert.join(ours, ours.encode(text))[0] == ids.tolist(), ascii(text)


@pytest.mark.full(sample=1)
def test_every_code_point_of_unicode_8_has_the_ids_of_the_package(both) -> None:
    assert len(KNOWN) > 100_000 and 300 < len(YOUNG) < 1_000
    texts = [f"a{char}b {char}" for char in KNOWN]
    assert_same_ids(both, [" ".join(texts[start : start + 64]) for start in range(0, len(texts), 64)])


fuzzed = st.text(
    st.sampled_from(KNOWN) | st.sampled_from("aÉß ΣςİIé\u0301\u0345\u0323中한\x00\x85\u200d\t.,$`¿##walked")
)


@settings(max_examples=300, deadline=None)
@given(text=fuzzed)
def test_fuzzed_texts_have_the_ids_of_the_package(both, text: str) -> None:
    assume("[MASK]" not in text)  # hypothesis tries words of the code, too; the next test is about this one
    assert_same_ids(both, [text])


def test_marker_in_a_text_and_long_words_have_the_ids_of_the_package(both) -> None:
    ours, theirs = both
    texts = ["[MASK]", "the [MASK] sat[MASK].", "[mask] [CLS] [SEP]", "a" * 100, "a" * 101, "##a", ""]
    for text in texts[:3]:
        marked = text.replace("[CLS] [SEP]", "")
        expected = theirs.encode(marked, special_tokens_in_text=True).input_ids.tolist()
        assert bert.join(ours, ours.encode(marked))[0] == expected
    assert_same_ids(both, texts[3:])


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the data folder {SHARED}")
@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_published_vocabulary_has_the_ids_of_the_package_on_real_lines(case: str) -> None:
    tokens = (SHARED / f"bert-base-{case}" / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    lines = [
        line
        for path in sorted((SHARED.parent / "udhr2").glob("*.txt"))
        for line in path.read_text(encoding="utf-8").split("\n")[10:14]
        if not YOUNG & set(line)
    ]
    assert len(lines) > 1_000
    assert_same_ids(tokenizers(tokens, case == "uncased"), lines)


# ---- examples of pre-training


class OneByOne(random.Random):
    """Python's generator, on the numbers of a key of the package, one after the other."""

    def __init__(self, key: int) -> None:
        super().__init__()
        self.draws = reference.Draws(key)

    def random(self) -> float:
        return float(reference.uniform(*self.draws.next()))

    def randint(self, low: int, high: int) -> int:
        return self.draws.integer(low, high)


class ByPosition(random.Random):
    """Python's generator, on the numbers that the package has for the positions of a sequence."""

    def __init__(self, key: int, num_masked: int) -> None:
        super().__init__()
        self.order, self.tokens = reference.key_of(key, 0, 0), reference.key_of(key, 1, 0)
        self.num_masked = num_masked

    def shuffle(self, positions: list[int]) -> None:
        for turn in range(len(positions)):
            other = turn + reference.below(self.order, turn, len(positions) - turn)
            positions[turn], positions[other] = positions[other], positions[turn]
        self.coming = iter(sorted(positions[: self.num_masked]))

    def random(self) -> float:
        self.position = next(self.coming)
        return float(reference.uniform(self.tokens, 2 * self.position))

    def randrange(self, limit: int) -> int:
        return reference.below(self.tokens, 2 * self.position + 1, limit)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("max_seqlen", [5, 24, 128])
def test_pairs_segments_and_masks_are_those_of_the_package(max_seqlen: int) -> None:
    documents, seed, epoch = random_documents(37, seed=2), 9, 3
    tokenizer = bert.Tokenizer(vocabulary_tokens(99))
    sequences = everything(SentencePairs(shard_of(documents), SPECIAL, max_seqlen, seed), epoch)
    masking = Masking(SPECIAL, np.zeros(99, bool), seed=seed)
    masked = masking(sequences, 0.15, epoch, np.arange(len(rows(sequences))))

    pairs = []
    for number in range(len(documents)):
        key = reference.key_of(seed, epoch, number)
        for made, (a, b, label) in enumerate(bert.sentence_pairs(documents, number, max_seqlen - 3, OneByOne(key))):
            bert.shorten(a, b, max_seqlen - 3, OneByOne(reference.bits(key, 2**64 - 1 - made)))
            pairs.append((a, b, label))
    joined = [bert.join(tokenizer, a, b) for a, b, _ in pairs]
    assert [ids for ids, _ in joined] == rows(sequences)
    assert [kind for _, types in joined for kind in types] == sequences.token_type_ids.tolist()
    assert [label for *_, label in pairs] == sequences.next_sentence_label.tolist()

    input_ids, positions = [], []
    for index, (ids, _) in enumerate(joined):
        draws = ByPosition(reference.key_of(seed, epoch, index), max(1, round(0.15 * len(ids))))
        read, chosen = bert.mask(ids, tokenizer, draws)
        positions += [len(input_ids) + position for position in chosen]
        input_ids += read
    assert input_ids == masked.input_ids.tolist() and positions == masked.positions.tolist()


def test_example_has_masked_tokens_as_labels() -> None:
    tokenizer = bert.Tokenizer(vocabulary_tokens(99))
    pairs = [([10, 11, 12], [13] * number, number % 2) for number in range(5, 20)]
    batch, positions, labels, next_sentence_label = bert.make_example(pairs, tokenizer, random.Random(1))
    original = [token for a, b, _ in pairs for token in bert.join(tokenizer, a, b)[0]]
    assert labels.tolist() == [original[position] for position in positions.tolist()]
    changed = [index for index, token in enumerate(batch.input_ids.tolist()) if token != original[index]]
    assert changed and set(changed) <= set(positions.tolist())
    assert next_sentence_label.tolist() == [label for *_, label in pairs]
    assert batch.lengths == [len(a) + len(b) + 3 for a, b, _ in pairs]


# ---- outputs


@pytest.mark.parametrize("number", range(4))
@torch.no_grad()
def test_outputs_are_those_of_the_package(number: int, tmp_path: Path) -> None:
    model = our_model("pretraining", number, hidden_act="gelu")
    model.save(tmp_path)
    plain, tokenizer = bert.load(tmp_path)
    encodings = [model.tokenizer.encode(SENTENCES[0]), model.tokenizer.encode(SENTENCES[2], "the cat")]
    sequences = [bert.join(tokenizer, tokenizer.encode(SENTENCES[0]))]
    sequences.append(bert.join(tokenizer, tokenizer.encode(SENTENCES[2]), tokenizer.encode("the cat")))
    batch, packed = bert.pack(sequences), collate(encodings)
    assert torch.equal(batch.input_ids, packed.input_ids) and torch.equal(batch.position_ids, packed.position_ids)

    expected = model.encoder(packed)
    hidden = plain.encode(batch)
    pooled = plain.pool(hidden, batch.lengths)
    assert error(hidden, expected.last_hidden_state) < 1e-5 and error(pooled, expected.pooled) < 1e-5
    heads, table = model.network.heads, model.encoder.embeddings.word.weight
    assert error(plain.masked_lm(hidden), heads["masked_lm"](expected.last_hidden_state, table)) < 1e-5
    assert error(plain.next_sentence(pooled), heads["next_sentence"](expected.pooled)) < 1e-5

    texts = ("the [MASK] sat.", "one [MASK] three")
    (filled,) = bert.fill_mask(plain, tokenizer, texts[0], top_k=7)
    (candidates,) = (one.candidates for one in model.fill_mask(texts[0], top_k=7))
    assert [token for token, _ in filled] == [one.token for one in candidates]
    assert [prob for _, prob in filled] == pytest.approx([one.score for one in candidates], abs=1e-5)
    probability = model.next_sentence_probability(*SENTENCES[:2])
    assert bert.next_sentence_prob(plain, tokenizer, *SENTENCES[:2]) == pytest.approx(probability, abs=1e-5)


@torch.no_grad()
def test_opens_encoders_and_old_names_of_transformers(tmp_path: Path) -> None:
    published = published_model("encoder", 5, hidden_act="gelu")
    save_published(published, tmp_path)
    edit_tensors(
        tmp_path,
        lambda tensors: tensors.update(
            {name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensors.pop(name) for name in list(tensors)}
        ),
    )
    plain, tokenizer = bert.load(tmp_path)
    sequence = bert.join(tokenizer, tokenizer.encode(SENTENCES[1]))
    hidden = plain.encode(bert.pack([sequence]))
    assert error(hidden, published(torch.tensor([sequence[0]])).last_hidden_state[0]) < 1e-5
    with pytest.raises(KeyError, match=r"cls\.predictions\.transform\.dense\.weight"):
        bert.fill_mask(plain, tokenizer, "the [MASK]")


def test_refuses_other_models_and_long_texts(tmp_path: Path) -> None:
    our_model("pretraining", 0, hidden_act="relu").save(tmp_path / "relu")
    with pytest.raises(ValueError, match="hidden_act=gelu"):
        bert.load(tmp_path / "relu")
    model = our_model("pretraining", 1, hidden_act="gelu", max_position_embeddings=8)
    model.save(tmp_path / "short")
    with pytest.raises(ValueError, match="a text has 10 tokens, and this model reads up to 8"):
        bert.fill_mask(*bert.load(tmp_path / "short"), "a b c d e f g [MASK]")


# ---- training


def easy_text() -> str:
    """Documents of sentences about one subject each: a sentence of another document has another subject."""
    draw, subjects = random.Random(4), ["cat", "dog", "king", "ship", "tree", "book"]
    sentence = "The {} is {} and {}."
    adjectives = "big small old young red green".split()
    return "\n\n".join(
        " ".join(sentence.format(subject, *draw.sample(adjectives, 2)) for _ in range(9)) for subject in subjects * 9
    )


def test_tiny_bert_learns_and_opens_in_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = bert.train(easy_text(), num_steps=100, batch_size=8, max_seqlen=32)
    losses = [float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    guess = math.log(len(tokenizer.tokens)) + math.log(2)
    assert len(losses) == 2 and losses[1] < losses[0] - 0.2 and losses[1] < guess - 1
    folder = tmp_path / "tiny"
    bert.save(model, tokenizer, folder)
    text, question = "The cat is [MASK] and old.", ("The cat is big and old.", "The cat is red and young.")
    opened = load(folder)
    (candidates,) = (one.candidates for one in opened.fill_mask(text))
    bert.main([str(folder), text])
    assert capsys.readouterr().out.split()[::2] == [one.token for one in candidates]
    bert.main([str(folder), *question])
    assert float(capsys.readouterr().out) == pytest.approx(opened.next_sentence_probability(*question), abs=1e-3)


def test_command_trains_on_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert.train, "__defaults__", (2, 4, 16))
    (tmp_path / "text.txt").write_text(easy_text())
    bert.main(["--train", str(tmp_path / "text.txt"), str(tmp_path / "model")])
    assert load(tmp_path / "model").config.max_position_embeddings == 16
    with pytest.raises(ValueError, match="two documents or more, separated by empty lines"):
        bert.train("One document. Of two sentences.")
    with pytest.raises(SystemExit, match="All of BERT in one file"):
        bert.main([])
