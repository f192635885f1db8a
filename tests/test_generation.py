"""Generation: equal to transformers token for token, to an exhaustive search, and to itself in any batch."""

import itertools
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from generation_reference import UncachedDecoding
from random_models import edit_json, edit_tensors, randomize, write_tokenizer
from torch import Tensor

import bertkit
from bertkit.checkpoint.encoder_decoder import open_encoder_decoder, save_encoder_decoder, warm_started
from bertkit.cli import run
from bertkit.errors import BertkitError, CheckpointError, UsageError
from bertkit.generation import (
    Causal,
    Ending,
    GenerationSettings,
    SequenceToSequence,
    completed,
    generation_steps,
    load_generator,
)
from bertkit.generation.beam import beam_steps
from bertkit.generation.engine import kept_probs
from bertkit.generation.page import write_generation_page
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE
from bertkit.transformer.kernels.panel_product import weight_scales
from bertkit.transformer.kernels.rounded_linear import RoundedLinear

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 24, "intermediate_size": 37}


def byte_level_tokenizer(folder: Path) -> None:
    """GPT-2's kind: byte-level BPE without special tokens around a text."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    library.train_from_iterator(["the cat sat on the mat, the dog ran"] * 3, trainer)
    library.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "tokenizer_class": "GPT2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def gpt2(folder: Path, number: int = 0, **changes: Any) -> Any:
    """A random GPT-2 in transformers, saved with its tokenizer."""
    folder.mkdir(exist_ok=True)
    byte_level_tokenizer(folder)
    size = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40} | changes
    config = transformers.GPT2Config(vocab_size=size + 3, bos_token_id=0, eos_token_id=0, **sizes)
    model = transformers.GPT2LMHeadModel(config).eval()
    randomize(model, number)
    model.save_pretrained(folder)
    return model


def bert_decoder(folder: Path, number: int = 0, **changes: Any) -> Any:
    """A random BERT that reads left to right."""
    sizes = SIZES | {"vocab_size": 99, "max_position_embeddings": 40} | changes
    config = transformers.BertConfig(**sizes, is_decoder=True, attn_implementation="eager")
    model = transformers.BertLMHeadModel(config).eval()
    randomize(model, number)
    model.save_pretrained(folder)
    write_tokenizer(folder, 99)
    return model


def marian(folder: Path, number: int = 0, **changes: Any) -> Any:
    """A random Marian model with a tokenizer of BERT's kind, whose [SEP] ends targets."""
    settings = {
        "vocab_size": 99, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
        "decoder_attention_heads": 3, "encoder_ffn_dim": 37, "decoder_ffn_dim": 41, "max_position_embeddings": 40,
        "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 3, "forced_eos_token_id": 3,
        "scale_embedding": True, "activation_function": ["relu", "swish"][number % 2],
    } | changes  # fmt: skip
    model = transformers.MarianMTModel(transformers.MarianConfig(**settings)).eval()
    randomize(model, number)
    for stack in (model.model.encoder, model.model.decoder):  # constants, which `randomize` does not know
        stack.embed_positions.weight.data.copy_(stack.embed_positions.create_weight())
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(number))
    model.generation_config.bad_words_ids = [[0]]
    model.save_pretrained(folder)
    write_tokenizer(folder, 99)
    return model


def bert_pair(folder: Path, number: int = 0, **changes: Any) -> Any:
    """A random pair of BERTs, the decoder with another number of layers."""
    encoder = transformers.BertConfig(vocab_size=99, **(SIZES | changes), max_position_embeddings=40)
    decoder = transformers.BertConfig(
        vocab_size=99, **(SIZES | changes | {"num_hidden_layers": 1}), max_position_embeddings=40, is_decoder=True,
        add_cross_attention=True,
    )  # fmt: skip
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = transformers.EncoderDecoderModel(config).eval()
    randomize(model, number)
    for part in (model.config, model.generation_config):
        part.decoder_start_token_id, part.eos_token_id, part.pad_token_id = 2, 3, 0
    model.save_pretrained(folder)
    write_tokenizer(folder, 99)
    return model


MAKERS = {"gpt2": gpt2, "bert": bert_decoder, "marian": marian, "encoder-decoder": bert_pair}
TEXTS = ["the cat sat on the mat", "the dog", "a", "one two three four walk talk", "the mat ran"]


def theirs_of(model: Any, inputs: Sequence[np.ndarray], **options: Any) -> list[list[int]]:
    """The tokens that transformers generates for each input alone, without the prompt."""
    results = []
    for own in inputs:
        ids = torch.from_numpy(own)[None]
        options = {"do_sample": False, "max_new_tokens": 12, "min_length": 0, "pad_token_id": 0} | options
        made = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        made = made[1:] if model.config.is_encoder_decoder else made[len(own) :]
        results.append(made)
    return results


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("number", [0, 1])
def test_equals_transformers_token_for_token(tmp_path: Path, name: str, number: int) -> None:
    theirs = MAKERS[name](tmp_path / "model", number)
    ours = load_generator(tmp_path / "model")
    inputs = ours.encode(TEXTS)
    for options in ({}, {"num_beams": 4}, {"num_beams": 3, "length_penalty": 2.0}):
        expected = theirs_of(theirs, inputs, **options)
        made = ours.generate_ids(inputs, GenerationSettings(max_new_tokens=12, **options))
        assert [one.ids for one in made] == expected, options
        assert len({tuple(one) for one in expected}) > 1 or (name, number) == ("marian", 0)
    saved = tmp_path / "saved"
    ours.save(saved)
    again = load_generator(saved)
    assert [one.ids for one in again.generate_ids(inputs, GenerationSettings(max_new_tokens=12))] == [
        one.ids for one in ours.generate_ids(inputs, GenerationSettings(max_new_tokens=12))
    ]
    reopened = type(theirs).from_pretrained(saved).eval()
    for key, value in theirs.state_dict().items():
        if "pooler" not in key:  # unused by a decoder's encoder, and not kept
            assert torch.equal(reopened.state_dict()[key], value), key


@pytest.mark.full
@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize(
    "rules",
    [
        {"renormalize_logits": True, "bad_words_ids": [[0], *([one] for one in range(20, 70))]},
        {"bad_words_ids": [[one] for one in range(10, 60)]},
        {"forced_eos_token_id": 7},
        {"eos_token_id": [0, *range(40, 60)]},
    ],
)
def test_rules_of_the_folder_are_applied_and_saved(tmp_path: Path, name: str, rules: dict[str, Any]) -> None:
    model = MAKERS[name](tmp_path / "model", 1)
    if model.config.is_encoder_decoder and "eos_token_id" in rules:
        rules = {"eos_token_id": 40}
    edit_json(tmp_path / "model" / "generation_config.json", **rules)
    ours = load_generator(tmp_path / "model")
    ours.save(tmp_path / "saved")
    again = load_generator(tmp_path / "saved")
    assert again.ending == ours.ending
    inputs = ours.encode(TEXTS)
    for folder in ("model", "saved"):
        theirs = type(model).from_pretrained(tmp_path / folder).eval()
        for options in ({}, {"num_beams": 4}):
            expected = theirs_of(theirs, inputs, **options)
            for generator in (ours, again):
                made = generator.generate_ids(inputs, GenerationSettings(max_new_tokens=12, **options))
                assert [one.ids for one in made] == expected, options


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_rules_that_are_not_applied_are_named(tmp_path: Path, name: str) -> None:
    MAKERS[name](tmp_path / "model")
    path = tmp_path / "model" / "generation_config.json"
    without = {"no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "min_length": 0, "num_beams": 4}
    edit_json(path, **without, bad_words_ids=[[7]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_generator(tmp_path / "model")
    edit_json(path, no_repeat_ngram_size=3, bad_words_ids=[[7, 8], [9]])
    with pytest.warns(UserWarning, match=r"no_repeat_ngram_size=3, bad_words_ids=\[\[7, 8\]\]; texts may differ"):
        ours = load_generator(tmp_path / "model")
    ours.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "generation_config.json").read_text())["no_repeat_ngram_size"] == 3
    edit_json(path, bad_words_ids=[[999]], no_repeat_ngram_size=None)
    with pytest.raises(CheckpointError, match="names the id 999: expected 0 to "):
        load_generator(tmp_path / "model")


@pytest.mark.parametrize("name", list(MAKERS))
def test_logits_equal_transformers(tmp_path: Path, name: str) -> None:
    theirs = MAKERS[name](tmp_path / "model", 3)
    ours = load_generator(tmp_path / "model")
    for own in ours.encode(TEXTS):
        decoding = UncachedDecoding(ours, [own])
        ids, start = torch.from_numpy(own)[None], np.array([5, 9, 7, 11])
        with torch.inference_mode():
            if theirs.config.is_encoder_decoder:
                expected = theirs(input_ids=ids, decoder_input_ids=torch.from_numpy(start)[None]).logits[0, -1]
            else:
                expected, start = theirs(ids).logits[0, -1], own
        torch.testing.assert_close(decoding.start([start])[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", list(MAKERS))
def test_cached_equals_uncached(tmp_path: Path, name: str) -> None:
    MAKERS[name](tmp_path / "model", 2)
    ours = load_generator(tmp_path / "model")
    inputs = ours.encode(TEXTS)
    settings = GenerationSettings(max_new_tokens=20)
    prompts, limits = ours.prompts_and_limits(inputs, settings)
    made = {}
    decodings = {True: lambda: ours.decoding(inputs, "float32"), False: lambda: UncachedDecoding(ours, inputs)}
    for cached, make in decodings.items():
        decoding = make()
        made[cached] = [
            one.ids for one in completed(generation_steps(decoding, prompts, limits, settings, Ending((1,))))
        ]
        decoding = make()
        beams = completed(beam_steps(decoding, prompts, limits, replace(settings, num_beams=3), Ending((1,))))
        made[cached] += [one.ids for one in beams]
    assert made[True] == made[False]
    assert max(map(len, made[True])) > 15


@pytest.mark.parametrize("name", ["marian", "encoder-decoder"])
def test_several_end_ids_of_encoder_decoders(tmp_path: Path, name: str) -> None:
    theirs = MAKERS[name](tmp_path / "model", 1)
    first = load_generator(tmp_path / "model").generate_ids([np.array([2, 9, 3])], GenerationSettings(6))[0].ids
    ends = [3, first[1]]
    edit_json(tmp_path / "model" / "generation_config.json", eos_token_id=ends)
    load_generator(tmp_path / "model").save(tmp_path / "saved")
    for folder in (tmp_path / "model", tmp_path / "saved"):
        ours = load_generator(folder)
        inputs = ours.encode(TEXTS)
        made = [one.ids for one in ours.generate_ids(inputs, GenerationSettings(max_new_tokens=6))]
        assert made == theirs_of(theirs, inputs, max_new_tokens=6, eos_token_id=ends)


def test_pair_of_berts_saved_by_transformers_4(tmp_path: Path) -> None:
    bert_pair(tmp_path)
    expected = load_generator(tmp_path).generate(TEXTS, GenerationSettings(6))
    older = {
        "chunk_size_feed_forward": 0, "pruned_heads": {}, "is_encoder_decoder": False, "problem_type": None,
        "task_specific_params": None, "torchscript": False, "tokenizer_class": None, "use_bfloat16": False,
    }  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    for stack in ("encoder", "decoder"):
        config[stack] |= older
    (tmp_path / "config.json").write_text(json.dumps(config))
    names = "encoder.embeddings.position_ids", "decoder.bert.embeddings.position_ids"
    edit_tensors(tmp_path, lambda tensors: tensors.update({name: torch.arange(40)[None] for name in names}))
    assert load_generator(tmp_path).generate(TEXTS, GenerationSettings(6)) == expected
    for stack, key, value in (
        ("decoder", "chunk_size_feed_forward", 64), ("encoder", "is_decoder", True), ("decoder", "is_decoder", False),
        ("decoder", "tie_word_embeddings", False), ("encoder", "position_embedding_type", "relative_key"),
    ):  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config | {stack: config[stack] | {key: value}}))
        with pytest.raises(CheckpointError, match=f"{stack} has {key}={value!r}; supported: "):
            load_generator(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", ["gpt2", "marian"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_bits_do_not_depend_on_the_batch(tmp_path: Path, name: str, precision: str) -> None:
    MAKERS[name](tmp_path / "model", 2)
    ours = load_generator(tmp_path / "model")
    texts = [text for text in TEXTS for _ in range(4)]
    for options in ({}, {"temperature": 0.9, "top_p": 0.8}, {"num_beams": 2}):
        settings = GenerationSettings(max_new_tokens=9, precision=precision, **options)
        together = ours.generate(texts, settings)
        if "temperature" in options:
            assert together == ours.generate(texts, settings)
            assert len({one.text for one in together[:4]}) > 1
            assert together[:3] == ours.generate(texts[:3], settings)
            continue
        assert together == [ours.generate([text], settings)[0] for text in texts]  # scores too: the same bits


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("name", MAKERS)
def test_8_bit_logits_are_close_to_those_in_float32(tmp_path: Path, name: str) -> None:
    MAKERS[name](tmp_path / "model", 2)
    ours = load_generator(tmp_path / "model")
    inputs = ours.encode(TEXTS)
    prompts, _ = ours.prompts_and_limits(inputs, GenerationSettings())
    exact, rounded = (ours.decoding(inputs, precision).start(prompts) for precision in ("float32", "int8"))
    errors = (rounded - exact).square().mean().sqrt() / exact.std()
    assert 0 < errors < 0.05, errors


@pytest.mark.parametrize("num_rows", [1, 3, 17])
def test_rounded_products_equal_their_definition(num_rows: int) -> None:
    torch.manual_seed(num_rows)
    weight, bias, x, residual = (
        torch.randn(29, 23),
        torch.randn(29),
        torch.randn(num_rows, 23),
        torch.randn(num_rows, 29),
    )
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    step = (high - low) / LARGEST_BYTE
    of_rows = ((x - low) / step).round() * step + low
    scales = torch.from_numpy(weight_scales(weight.numpy()))[:, None]
    expected = of_rows @ ((weight / scales).round() * scales).T + bias
    made = RoundedLinear(weight, bias)
    torch.testing.assert_close(made(x, residual=residual), expected + residual, atol=2e-4, rtol=0)
    torch.testing.assert_close(made(x, activation="gelu_new"), F.gelu(expected, approximate="tanh"), atol=2e-4, rtol=0)


class _Table:
    """A model without a network: logits that are a random function of the whole row."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        self.vocab_size, self.seed = vocab_size, seed

    def logits(self, row: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, row)) % 2**31)
        return 2 * torch.randn(self.vocab_size, generator=generator)

    def start(self, prompts: Sequence[np.ndarray]) -> Tensor:
        self.rows = [tuple(prompt.tolist()) for prompt in prompts]
        return torch.stack([self.logits(row) for row in self.rows])

    def step(self, tokens: np.ndarray, parents: np.ndarray) -> Tensor:
        self.rows = [(*self.rows[parent], int(token)) for token, parent in zip(tokens, parents, strict=True)]
        return torch.stack([self.logits(row) for row in self.rows])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_wide_beam_equals_exhaustive_search(seed: int, length_penalty: float) -> None:
    table, longest, end = _Table(4, seed), 4, 0
    best: tuple[float, list[int]] = (-np.inf, [])
    for length in range(1, longest + 1):
        for ids in itertools.product(range(4), repeat=length):
            if end in ids[:-1] or (length < longest and ids[-1] != end):
                continue
            rows = [(7, *ids[:step]) for step in range(length)]
            score = sum(float(table.logits(row).log_softmax(0)[token]) for row, token in zip(rows, ids, strict=True))
            best = max(best, (score / length**length_penalty, list(ids)))
    settings = GenerationSettings(num_beams=4**longest, length_penalty=length_penalty, max_new_tokens=longest)
    (result,) = completed(beam_steps(table, [np.array([7])], [longest], settings, Ending((end,))))
    assert result.ids == best[1]
    assert result.score == pytest.approx(best[0])


def test_sampling_follows_the_probabilities() -> None:
    table, settings = _Table(6, 1), GenerationSettings(max_new_tokens=1, temperature=2.0, top_k=4, top_p=0.95)
    prompts = [np.array([7])] * 4_000
    made = completed(generation_steps(table, prompts, [1] * 4_000, settings, Ending((0,))))
    expected = kept_probs(table.logits((7,)).log_softmax(0)[None], settings)[0].numpy()
    shares = np.bincount([one.ids[0] for one in made], minlength=6) / 4_000
    assert 1 < (expected > 0).sum() <= 4
    np.testing.assert_allclose(shares, expected, atol=0.03)
    assert (shares[expected == 0] == 0).all()


def test_each_text_and_step_has_its_own_random_numbers() -> None:
    """Of two steps every pair is as frequent as its probability; a later part of the texts is drawn as in the whole."""
    settings, prompts = GenerationSettings(temperature=1.0, seed=5), [np.array([7])] * 4_000
    table = _Table(2, 1)
    made = [tuple(one.ids) for one in completed(generation_steps(table, prompts, [2] * 4_000, settings, Ending(())))]
    first = table.logits((7,)).softmax(0)
    for ids in itertools.product(range(2), repeat=2):
        expected = float(first[ids[0]] * table.logits((7, ids[0])).softmax(0)[ids[1]])
        assert made.count(ids) / 4_000 == pytest.approx(expected, abs=0.03)
    part = completed(generation_steps(table, prompts[:99], [2] * 99, settings, Ending(()), first_index=41))
    assert [tuple(one.ids) for one in part] == made[41:140]
    other = completed(generation_steps(table, prompts[:99], [2] * 99, replace(settings, seed=6), Ending(())))
    assert [tuple(one.ids) for one in other] != made[:99]


def test_a_too_long_prompt_is_named_before_anything_is_generated(tmp_path: Path) -> None:
    gpt2(tmp_path / "model")
    ours = load_generator(tmp_path / "model")
    inputs = ours.encode([*["a"] * 20, "z " * 99, "a"])
    with pytest.raises(UsageError, match=r"prompt 20 has 1.. tokens"):
        next(ours.steps(inputs, GenerationSettings(2)))


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}])
def test_probabilities_that_are_not_numbers_show_in_the_score(tmp_path: Path, options: dict[str, Any]) -> None:
    gpt2(tmp_path / "model")
    ours = load_generator(tmp_path / "model")
    with torch.no_grad():
        ours.network.encoder.embeddings.word.weight.fill_(torch.nan)
    (made,) = ours.generate(["the cat"], GenerationSettings(3, **options))
    assert np.isnan(made.score)


def test_results_on_a_terminal_are_one_table(tmp_path: Path, monkeypatch, capsys) -> None:
    gpt2(tmp_path / "model")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["generate", "the cat", "a dog", "--model", str(tmp_path / "model"), "--max-new-tokens", "2"]) == 0
    assert capsys.readouterr().out.count("generated") == 1
    assert run(["generate", "the cat", "--model", "no", "--columns", "text=source"]) == 2
    assert "--columns names columns of a file: give one with --input" in capsys.readouterr().err


def test_candidates_of_each_step(tmp_path: Path) -> None:
    gpt2(tmp_path / "model")
    (made,) = load_generator(tmp_path / "model").generate(["the cat"], GenerationSettings(5, num_candidates=3))
    assert len(made.candidates) == made.num_tokens
    assert all(len(step) == 3 and step[0][1] >= step[1][1] >= step[2][1] > 0 for step in made.candidates)


def test_gpt2_encodes_and_decodes_as_published(tmp_path: Path) -> None:
    gpt2(tmp_path / "model")
    ours = load_generator(tmp_path / "model")
    published = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "model" / "tokenizer.json"))
    for text in (*TEXTS, "  Größe\n\t42 — ☃"):
        (ids,) = ours.encode([text])
        assert ids.tolist() == published(text)["input_ids"]
        assert ours.tokenizer.decode(ids) == text
    with pytest.raises(UsageError, match="no special tokens"):
        ours.tokenizer.encode("a text")


def test_pair_of_berts_starts_from_one(tmp_path: Path) -> None:
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=99, **SIZES, max_position_embeddings=40)
    ).eval()
    randomize(model, 4)
    model.save_pretrained(tmp_path / "bert")
    write_tokenizer(tmp_path / "bert", 99)
    started = warm_started(tmp_path / "bert", seed=1)
    save_encoder_decoder(started, tmp_path / "pair")
    pair, stored = transformers.EncoderDecoderModel.from_pretrained(tmp_path / "pair"), model.state_dict()
    assert any("crossattention" in name for name in pair.state_dict())
    for name, value in pair.state_dict().items():
        published = ""
        for prefix, other in (("encoder.", "bert."), ("decoder.bert.", "bert."), ("decoder.cls.", "cls.")):
            if name.startswith(prefix):
                published = other + name.removeprefix(prefix)
                break
        if published in stored:
            assert torch.equal(value, stored[published]), name
    assert len(SequenceToSequence(started).generate(TEXTS, GenerationSettings(4))) == len(TEXTS)


def test_separate_vocabularies(tmp_path: Path) -> None:
    theirs = marian(tmp_path / "m", share_encoder_decoder_embeddings=False, decoder_vocab_size=101)
    ours = load_generator(tmp_path / "m")
    inputs = ours.encode(TEXTS)
    made = ours.generate_ids(inputs, GenerationSettings(max_new_tokens=12))
    assert [one.ids for one in made] == theirs_of(theirs, inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0: expected an integer of at least 1"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"seed": 0}, "seed=0 requires sampling: give a temperature too"),
        ({"temperature": 1.0, "seed": 2**63}, r"seed=9223372036854775808: expected an integer from 0 to below 2\*\*63"),
        ({"temperature": 0.0}, "temperature=0.0: expected a number above 0"),
        ({"temperature": 1.0, "top_p": 1.5}, "top_p=1.5"),
        ({"top_k": 3}, "give a temperature"),
        ({"temperature": "0.8"}, "temperature='0.8': expected a finite number or None"),
        ({"temperature": True}, "temperature=True: expected a finite number"),
        ({"temperature": float("inf")}, "temperature=inf: expected a finite number"),
        ({"num_beams": 2, "length_penalty": float("nan")}, "length_penalty=nan: expected a finite number"),
        ({"precision": 8}, "precision=8: expected a string"),
        ({"top_k": 3.0}, "top_k=3.0: expected an integer or None"),
        ({"temperature": 1.0, "top_p": "0.9"}, "top_p='0.9': expected a finite number"),
        ({"length_penalty": "1"}, "length_penalty='1': expected a finite number"),
        ({"length_penalty": 2.0}, "length_penalty=2.0 is for beams: give num_beams too"),
        ({"stop": "end"}, "stop='end': expected a list, each item a string"),
        ({"stop": [1]}, r"stop=\[1\]: expected a list, each item a string"),
        ({"num_beams": 2, "temperature": 1.0}, "beam search does not sample"),
    ],
)
def test_rejects_invalid_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GenerationSettings(**options)


def test_rejects_invalid_texts_and_models(tmp_path: Path) -> None:
    gpt2(tmp_path / "gpt2")
    marian(tmp_path / "marian")
    causal, translator = load_generator(tmp_path / "gpt2"), load_generator(tmp_path / "marian")
    with pytest.raises(UsageError, match="prompt 1 is empty"):
        causal.generate(["the", ""])
    with pytest.raises(UsageError, match=r"prompt 0 has .* tokens: expected from 1 to the model's 40 positions"):
        causal.generate(["z " * 99])
    for generator in (causal, translator):
        with pytest.raises(UsageError, match=r"texts is a str \('the cat'\): expected several, such as .'the cat'."):
            generator.generate("the cat")
        with pytest.raises(UsageError, match="got a DataFrame: pass one of its columns"):
            generator.generate(pd.DataFrame({"text": ["the cat"]}))
    with pytest.raises(UsageError, match="source 0 is ' ': expected some text"):
        translator.generate([" "])
    with pytest.raises(UsageError, match=r"source 0 has .* positions"):
        translator.generate(["a b c " * 30])
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=99, **SIZES, max_position_embeddings=40))
    model.save_pretrained(tmp_path / "bert")
    write_tokenizer(tmp_path / "bert", 99)
    with pytest.raises(UsageError, match="reads both sides of a token and cannot continue"):
        load_generator(tmp_path / "bert")
    with pytest.raises(BertkitError, match="precision='int4'"):
        causal.generate(["the"], GenerationSettings(precision="int4"))
    config = json.loads((tmp_path / "marian" / "config.json").read_text())
    for change, message in (({"normalize_before": True}, "normalize_before"), ({"strange": 1}, "unknown keys")):
        (tmp_path / "marian" / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(CheckpointError, match=message):
            open_encoder_decoder(tmp_path / "marian")


def test_causal_model_computes_text_probability(tmp_path: Path) -> None:
    theirs = gpt2(tmp_path / "model")
    ours = load_generator(tmp_path / "model")
    assert isinstance(ours, Causal)
    (own,) = ours.encode(["the cat sat on the mat"])
    loss = theirs(torch.from_numpy(own)[None], labels=torch.from_numpy(own)[None]).loss.detach()
    assert -ours.log_probs([own])[0].mean() == pytest.approx(float(loss), rel=1e-5)
    assert bertkit.load(tmp_path / "model").config.is_decoder


def test_left_to_right_bert_fills_no_mask(tmp_path: Path) -> None:
    bert_decoder(tmp_path / "model")
    model = bertkit.load(tmp_path / "model")
    for call in (lambda: model.fill_mask("the [MASK]"), lambda: model.pseudo_log_likelihood(["the cat"]),
                 lambda: model.token_log_probs(["the cat"])):  # fmt: skip
        with pytest.raises(UsageError, match=r"reads from left to right, and a .MASK. needs both sides"):
            call()


def test_page_shows_candidates_and_attention(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    theirs = marian(tmp_path / "model")
    arguments = ["generate", "the cat <b>", "a", "--model", str(tmp_path / "model"), "--max-new-tokens", "5"]
    assert run([*arguments, "--page", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert json.loads(capsys.readouterr().out) == {"page": str(tmp_path / "page.html"), "bytes": len(page.encode())}
    assert page.count("Cross-attention of layer 3") == 2 and page.count("likeliest 5") == 2
    assert "the cat &lt;b&gt;" in page and "<b>" not in page
    assert "\xa0%<" in page and " %<" not in page, "a number may be apart from its sign"
    ours = load_generator(tmp_path / "model")
    assert isinstance(ours, SequenceToSequence)
    source, target = ours.encode(["the cat"])[0], [9, 11, 8]
    before = torch.tensor([[0, *target[:-1]]])
    theirs.set_attn_implementation("eager")
    expected = theirs(torch.from_numpy(source)[None], decoder_input_ids=before, output_attentions=True)
    for layer, probs in zip(ours.cross_attention(source, target), expected.cross_attentions, strict=True):
        torch.testing.assert_close(layer, probs[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="21 texts: a page shows up to 20"):
        write_generation_page(tmp_path / "p.html", ours, ["a"] * 21, GenerationSettings())
