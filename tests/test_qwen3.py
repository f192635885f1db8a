"""Qwen3-Embedding as published: a tokenizer without [CLS], pooling of the last token, instructions as prompts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from random_models import edit_json, randomize
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

import bertkit
from bertkit import Tokenizer
from bertkit.errors import CheckpointError, MissingHeadError, UsageError
from bertkit.generation import load_generator, writes_text

pytestmark = pytest.mark.usefixtures("one_thread")

END = "<|endoftext|>"
TEXTS = ["the cat sat on the mat", "", "It's 1234  dogs\n\n and  caf\u00e9s", "a", "red, green " * 9, f"a {END} b"]
QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


def tokenizer_folder(folder: Path) -> Path:
    """Files of a small tokenizer with the parts of the published one."""
    pattern = transformers.models.qwen2.tokenization_qwen2.PRETOKENIZE_REGEX
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    library = tokenizers.Tokenizer(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator([*TEXTS, QUERY] * 3, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    library.add_special_tokens([END, "<|im_start|>", "<|im_end|>"])
    end = [(END, library.token_to_id(END))]
    template = processors.TemplateProcessing(single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=end)
    library.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    folder.mkdir(exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": END, "unk_token": None}
    settings |= {"model_max_length": 131_072, "padding_side": "left", "add_prefix_space": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def model_folder(folder: Path, *, prefix: bool = False) -> Path:
    """A random model; encoders are published without a prefix."""
    tokenizer_folder(folder)
    config = transformers.Qwen3Config(
        vocab_size=320, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
        intermediate_size=31, max_position_embeddings=200, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    randomize(model, 1)
    (model if prefix else model.model).save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"architectures": ["Qwen3ForCausalLM"]}))
    return folder


def published(folder: Path) -> SentenceTransformer:
    """The folder that sentence-transformers writes with the published modules and prompts."""
    transformer = Transformer(str(model_folder(folder / "qwen3")))
    modules = [transformer, Pooling(24, "lasttoken", include_prompt=True), Normalize()]
    made = SentenceTransformer(modules=modules, prompts={"query": QUERY, "document": ""}, device="cpu")
    made.save(str(folder / "published"))
    return made


def theirs(folder: Path) -> Any:
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("length", [None, 6])
def test_tokens_are_as_in_transformers(tmp_path: Path, length: int | None, side: str) -> None:
    tokenizer_folder(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation_side": side}))
    ours, reference = Tokenizer.load(tmp_path), theirs(tmp_path)
    cut: dict[str, Any] = {} if length is None else {"on_long": "truncate", "max_length": length}
    options: dict[str, Any] = {} if length is None else {"truncation": True, "max_length": length}
    for pairs in (None, TEXTS[::-1]):
        encodings = ours.encode_batch(TEXTS, pairs, special_tokens_in_text=True, **cut)
        expected = reference(TEXTS, pairs, return_offsets_mapping=True, return_special_tokens_mask=True, **options)
        for number, encoding in enumerate(encodings):
            assert encoding.input_ids.tolist() == expected["input_ids"][number]
            assert encoding.input_ids[-1] == ours.sep_id
            added = encoding.special_tokens_mask
            assert added.sum() == (1 if pairs is None else 2)
            spans = np.array(expected["offset_mapping"][number])
            assert encoding.offsets[~added].tolist() == spans[~added].tolist()


def test_the_end_in_a_text_is_text(tmp_path: Path) -> None:
    ours = Tokenizer.load(tokenizer_folder(tmp_path))
    encoding = ours.encode(TEXTS[-1])
    assert (encoding.input_ids == ours.sep_id).tolist() == [False] * (len(encoding) - 1) + [True]
    assert ours.decode(encoding.input_ids) == TEXTS[-1]


def test_windows_own_each_token_once(tmp_path: Path) -> None:
    ours = Tokenizer.load(tokenizer_folder(tmp_path))
    (plain,) = ours.plain_ids(TEXTS[4:5])
    windows = ours.encode_batch(TEXTS[4:5], max_length=7, on_long="window", stride=3)
    owned = [window.input_ids[slice(*window.owned)] for window in windows]
    assert len(windows) > 3 and all(len(window) <= 7 for window in windows)
    assert [*np.concatenate(owned)[:-1]] == plain.tolist() and owned[-1][-1] == ours.sep_id
    pairs = ours.encode_batch(["the cat"], TEXTS[4:5], max_length=12, on_long="window")
    of_b = [pair.input_ids[slice(*pair.owned)] for pair in pairs]
    assert np.concatenate(of_b)[-len(plain) - 1 : -1].tolist() == plain.tolist()


def test_vectors_equal_sentence_transformers(tmp_path: Path) -> None:
    reference = published(tmp_path)
    model = bertkit.load(tmp_path / "published")
    assert (model.sentence_settings.pooling, model.sentence_settings.retrieval_prompts) == ("last", (QUERY, ""))
    texts = [text for text in TEXTS if END not in text]  # which is text here
    for options in ({}, {"prompt_name": "query"}, {"prompt": "Instruct: find a cat\nQuery:"}):
        expected = reference.encode(texts, **options)
        np.testing.assert_allclose(model.embed(texts, report=bertkit.InferenceReport(), **options), expected, atol=1e-5)
    model.save(tmp_path / "saved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(texts), reference.encode(texts), atol=1e-6)


def test_padding_changes_vectors_of_transformers_and_none_here(tmp_path: Path) -> None:
    """With padding on the right, the last column holds padding; with padding on the left, the last token."""
    model = bertkit.load(model_folder(tmp_path))
    model.checkpoint.sentence = bertkit.checkpoint.SentenceSettings(pooling="last", normalize=True)
    texts = [text for text in TEXTS if text and END not in text]
    alone = np.concatenate([model.embed([text]) for text in texts])
    np.testing.assert_array_equal(model.embed(texts, tokens_per_batch=10_000), alone)
    reference, tokenizer = transformers.Qwen3Model.from_pretrained(tmp_path), theirs(tmp_path)
    similarities = {}
    for side in ("right", "left"):
        tokenizer.padding_side = side
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            last = reference(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        vectors = torch.nn.functional.normalize(last[:, -1], dim=-1).numpy()
        similarities[side] = (vectors * alone).sum(axis=1).min()
    assert similarities["right"] < 0.9 and similarities["left"] > 1 - 1e-5


def test_classifier_reads_the_end_of_a_text(tmp_path: Path) -> None:
    """Transformers' class reads the last token that is not padding, and the published padding is the end of texts."""
    head: dict[str, Any] = {"heads": ["sequence_classification"], "new": ["sequence_classification"]}
    model = bertkit.load(model_folder(tmp_path / "encoder"), **head)
    model.checkpoint.mark_trained()
    model.save(tmp_path / "saved")
    encoding = model.tokenizer.encode(TEXTS[0])
    reference = transformers.Qwen3ForSequenceClassification.from_pretrained(tmp_path / "saved")
    ids = torch.tensor(encoding.input_ids)[None]
    with torch.inference_mode():
        ours = model.network.cpu()(bertkit.collate([encoding])).logits["sequence_classification"]
        torch.testing.assert_close(reference(input_ids=ids).logits, ours, rtol=0, atol=1e-5)
    bertkit.load(tmp_path / "saved")
    edit_json(tmp_path / "saved" / "config.json", pad_token_id=model.tokenizer.sep_id)
    with pytest.raises(CheckpointError, match=r"pad_token_id=300, the id that ends every text: .* write null if"):
        bertkit.load(tmp_path / "saved")


@pytest.mark.parametrize("prefix", [False, True])
def test_folders_with_and_without_the_language_model(tmp_path: Path, prefix: bool) -> None:
    model = bertkit.load(model_folder(tmp_path / "model", prefix=prefix))
    assert not model.network.heads and model.config.is_decoder
    assert not writes_text(tmp_path / "model")
    with pytest.raises(UsageError, match="no head that predicts the next token and cannot continue a text"):
        load_generator(tmp_path / "model")
    with pytest.raises(MissingHeadError, match="masked_lm"):
        model.fill_mask("the [MASK]")
