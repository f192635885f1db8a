"""Marian folders as published: two SentencePiece models and a vocabulary, equal to transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from random_models import edit_json, randomize

from bertkit.cli import run
from bertkit.errors import CheckpointError
from bertkit.generation import GenerationSettings, SequenceToSequence, load_generator
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.older_files import TARGET

ENGLISH = ["The cat sat on the mat.", "A dog ran into the garden!", "Nobody had seen the old house for 12 years."]
FRENCH = ["Le chat était assis sur le tapis.", "Un chien a couru dans le jardin !", "Personne n'avait vu la maison."]
OTHERS = ["  two  spaces ", "café ﬁne ①", "日本 a ж", "a", ">>fra<< The cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Marian model whose tokenizer has the files of opus-mt."""
    folder = tmp_path_factory.mktemp("marian")
    pieces: list[str] = []
    for name, lines in (("source", ENGLISH), ("target", FRENCH)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 9), model_prefix=str(folder / name), vocab_size=70, minloglevel=2,
            normalization_rule_name="nmt_nfkc", character_coverage=1.0, hard_vocab_limit=False,
        )  # fmt: skip
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces += [model.id_to_piece(number) for number in range(3, len(model))]
    tokens = ["</s>", "<unk>", *dict.fromkeys(pieces), ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "fra"}))
    config = transformers.MarianConfig(
        vocab_size=len(tokens), d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=37, decoder_ffn_dim=41, max_position_embeddings=64,
        pad_token_id=len(tokens) - 1, decoder_start_token_id=len(tokens) - 1, eos_token_id=0, forced_eos_token_id=0,
        scale_embedding=True, activation_function="swish",
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    randomize(model, 5)
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data.copy_(stack.embed_positions.create_weight())
    model.save_pretrained(folder)
    return folder


def test_ids_of_both_languages_equal_transformers(folder: Path) -> None:
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    ours = load_generator(folder)
    sources, targets = [*ENGLISH, *OTHERS], [*FRENCH, *OTHERS]
    assert [ids.tolist() for ids in ours.encode(sources)] == [theirs(line).input_ids for line in sources]
    made = ours.target_tokenizer.plain_ids(targets)
    assert [[*ids.tolist(), 0] for ids in made] == [theirs(text_target=line).input_ids for line in targets]


@pytest.mark.full
def test_translations_equal_transformers(folder: Path, tmp_path: Path) -> None:
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    network = transformers.MarianMTModel.from_pretrained(folder).eval()
    ours = load_generator(folder)
    assert isinstance(ours, SequenceToSequence)
    ours.save(tmp_path / "saved")
    assert (
        transformers.MarianTokenizer.from_pretrained(tmp_path / "saved")(ENGLISH[0]).input_ids
        == theirs(ENGLISH[0]).input_ids
    )
    again = load_generator(tmp_path / "saved")
    for line in ENGLISH:
        with torch.inference_mode():
            expected = network.generate(
                **theirs(line, return_tensors="pt"), do_sample=False, num_beams=1, max_new_tokens=20
            )
        text = theirs.decode(expected[0], skip_special_tokens=True)
        for generator in (ours, again):
            (made,) = generator.generate([line], GenerationSettings(max_new_tokens=20))
            assert made.text == text


def test_separate_vocabularies(folder: Path, tmp_path: Path) -> None:
    """The same model with the ids of targets in another order."""
    expected, apart = load_generator(folder), tmp_path / "apart"
    shutil.copytree(folder, apart)
    ids = json.loads((folder / "vocab.json").read_text())
    size = len(ids)
    moved = {token: number if number in (0, 1, size - 1) else size - number for token, number in ids.items()}
    (apart / "target_vocab.json").write_text(json.dumps(moved))
    edit_json(apart / "tokenizer_config.json", separate_vocabs=True)
    load_generator(apart).save(tmp_path / "saved")
    theirs = transformers.MarianTokenizer.from_pretrained(apart)
    for ours in (load_generator(apart), load_generator(tmp_path / "saved")):
        assert [one.tolist() for one in ours.encode(ENGLISH)] == [one.tolist() for one in expected.encode(ENGLISH)]
        made = [[*one.tolist(), 0] for one in ours.target_tokenizer.plain_ids(FRENCH)]
        assert made == [theirs(text_target=line).input_ids for line in FRENCH]
        for numbers in made:
            assert ours.decode(numbers).strip() == theirs.decode(numbers, skip_special_tokens=True).strip()
            assert ours.decode(numbers) != expected.decode(numbers)


def test_texts_of_any_ids_equal_transformers(folder: Path) -> None:
    theirs, ours = transformers.MarianTokenizer.from_pretrained(folder), load_generator(folder)
    size, draw = len(theirs), np.random.default_rng(3)
    for ids in [*([number] for number in range(size)), *draw.integers(0, size, (20, 7)).tolist()]:
        assert ours.decode(ids).strip() == theirs.decode(ids, skip_special_tokens=True).strip(), ids
        assert "\uffff" not in "".join(map(ours.spelled, ids))


def test_a_folder_without_the_targets_model_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "cut")
    (tmp_path / "cut" / TARGET).unlink()
    with pytest.raises(CheckpointError, match=r"no target\.spm: fetch it again"):
        load_generator(tmp_path / "cut")


@pytest.mark.full
def test_finetuning_reads_targets_with_the_targets_model(folder: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, FRENCH, strict=True)))
    out = tmp_path / "out"
    words = ["finetune", "seq2seq", "--train", pairs, "--model", folder, "--out", out, "--num-epochs", "1"]
    assert run([str(word) for word in words]) == 0
    trained = load_generator(out)
    assert trained.target_tokenizer.plain_ids(FRENCH)[0].tolist() == Tokenizer.load(
        folder, language=TARGET
    ).plain_ids(FRENCH)[0].tolist()  # fmt: skip


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"a": 0}, "lacks </s>, <unk>, <pad>"),
        ({"</s>": 0, "<unk>": 1, "<pad>": 7}, "each id from 0 to 2 once"),
        ({"</s>": 0, "<unk>": 1, "<pad>": 2, "a": "x"}, "each id from 0 to 3 once"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, vocabulary: dict[str, int], message: str
) -> None:
    (tmp_path / "source.spm").write_bytes((folder / "source.spm").read_bytes())
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(tmp_path)
