"""Tokens per second of generation, compared with transformers' generate and CTranslate2, with random weights.

    python benchmarks/generate.py [--quick] [--models decoder] [--batches 1] [--rounds 3]

Greedy, 64 new tokens for each text, at batch 1 and 16: an encoder-decoder of 6 + 6 layers, 512 wide (Marian's layout,
32 source tokens), and a decoder of BERT base's size (GPT-2's layout, 32 prompt tokens). transformers runs in float32
with its default and its static cache; CTranslate2, converted from the same weights, and bertkit in float32, bfloat16
and int8; CTranslate2 in a separate process. The libraries take turns, and the best turn counts. In float32 the tokens
are compared too. ``--quick`` uses smaller models.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import report
import tokenizers
import torch
import transformers
from worker import Worker

from bertkit.generation import GenerationSettings, load_generator

NEW_TOKENS, PROMPT_TOKENS = 64, 32
PRECISIONS = ("float32", "bfloat16", "int8")


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a vocabulary of numbered words as the two tokenizer files that a model folder needs."""
    library = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{number}": number for number in range(vocab_size)}, unk_token="w1")
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="w2 $A w3", pair="w2 $A w3 $B:1 w3:1", special_tokens=[("w2", 2), ("w3", 3)]
    )
    library.save(str(folder / "tokenizer.json"))
    names = {"cls_token": "w2", "sep_token": "w3", "pad_token": "w0", "unk_token": "w1", "mask_token": "w4"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def models(quick: bool) -> dict[str, Any]:
    """transformers' models by name."""
    width, layers, vocab_size = (256, 3, 8_000) if quick else (512, 6, 32_000)
    marian = transformers.MarianConfig(
        vocab_size=vocab_size, d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, encoder_attention_heads=8, decoder_attention_heads=8, max_position_embeddings=256,
        activation_function="relu", scale_embedding=True, pad_token_id=0, eos_token_id=3, decoder_start_token_id=0,
        forced_eos_token_id=None,
    )  # fmt: skip
    width, layers, heads = (256, 4, 4) if quick else (768, 12, 12)
    gpt2 = transformers.GPT2Config(
        vocab_size=vocab_size,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=256,
        bos_token_id=2,
        eos_token_id=3,
    )
    torch.manual_seed(0)
    return {"encoder-decoder": transformers.MarianMTModel(marian), "decoder": transformers.GPT2LMHeadModel(gpt2)}


def best_speed(work: Any, num_tokens: int, turns: int) -> tuple[float, Any]:
    """Tokens per second of the shortest of several turns, and what it returned."""
    times, result = [], None
    for _ in range(turns):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return round(num_tokens / min(times), 1), result


def ctranslate2_models(theirs: Any, folder: Path, threads: int) -> dict[str, Any]:
    """CTranslate2's models by precision, made from the weights of transformers' model."""
    import ctranslate2
    from ctranslate2.converters.transformers import _MODEL_LOADERS

    class Words:
        """The part of a tokenizer that CTranslate2's converter reads."""

        bos_token, eos_token, unk_token, pad_token = "w2", "w3", "w1", "w0"
        bos_token_id, eos_token_id, unk_token_id, pad_token_id = 2, 3, 1, 0

        def get_vocab(self) -> dict[str, int]:
            return {f"w{number}": number for number in range(theirs.config.vocab_size)}

    is_pair = theirs.config.is_encoder_decoder
    loader = _MODEL_LOADERS[type(theirs.config).__name__]
    spec = loader.get_model_spec(theirs)
    words = [f"w{number}" for number in range(theirs.config.vocab_size)]
    loader.set_vocabulary(spec, words[:-1] if is_pair else words)  # its Marian models have no last row, for padding
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "w2", "w3", "w1"
    if is_pair:
        spec.config.decoder_start_token = "w0"
        spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    kind, supported = (
        ctranslate2.Translator if is_pair else ctranslate2.Generator,
        ctranslate2.get_supported_compute_types("cpu"),
    )
    return {
        precision: kind(str(folder), device="cpu", compute_type=precision, intra_threads=threads, inter_threads=1)
        for precision in PRECISIONS
        if precision in supported  # bfloat16 on few processors
    }


def run_ctranslate2(model: Any, ids: np.ndarray) -> list[list[int]]:
    """The new tokens of each row."""
    rows = [[f"w{token}" for token in row] for row in ids.tolist()]
    if hasattr(model, "translate_batch"):
        made = model.translate_batch(rows, beam_size=1, min_decoding_length=NEW_TOKENS, max_decoding_length=NEW_TOKENS)
        return [[int(token[1:]) for token in one.hypotheses[0]] for one in made]
    made = model.generate_batch(
        rows, beam_size=1, min_length=NEW_TOKENS, max_length=NEW_TOKENS, include_prompt_in_result=False
    )
    return [one.sequences_ids[0] for one in made]


def load_ctranslate2(folder: Path, threads: int) -> Callable[[str, np.ndarray], list[list[int]] | None]:
    """A function of a precision and prompts: the new tokens by CTranslate2; None for a precision that it lacks here.

    For a separate process: once its threads have run, torch's are up to twice as slow.
    """
    (name,) = transformers.AutoConfig.from_pretrained(folder).architectures
    converted = ctranslate2_models(getattr(transformers, name).from_pretrained(folder), folder / "converted", threads)
    return lambda precision, ids: run_ctranslate2(converted[precision], ids) if precision in converted else None


def measured(theirs: Any, ours: Any, peer: Worker | None, ids: np.ndarray, turns: int) -> dict[str, Any]:
    """Tokens per second of each program for a batch, and the number of rows with transformers' tokens."""
    inputs, num_tokens = torch.from_numpy(ids), ids.shape[0] * NEW_TOKENS

    def run_theirs(cache: str | None) -> Any:
        with torch.inference_mode():
            return theirs.generate(
                inputs, attention_mask=torch.ones_like(inputs), do_sample=False, num_beams=1, pad_token_id=0,
                min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, bad_words_ids=None, cache_implementation=cache,
            )[:, -NEW_TOKENS:].tolist()  # fmt: skip

    line: dict[str, Any] = {}
    line["transformers float32"], expected = best_speed(partial(run_theirs, None), num_tokens, turns)
    try:
        run_theirs("static")
        line["transformers float32, static cache"], _ = best_speed(partial(run_theirs, "static"), num_tokens, turns)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        line["transformers float32, static cache"] = f"fails: {type(error).__name__}"
    for precision in PRECISIONS:
        settings = GenerationSettings(max_new_tokens=NEW_TOKENS, precision=precision)
        rows = list(ids)
        ours.generate_ids(rows, GenerationSettings(max_new_tokens=2, precision=precision))  # prepares
        speed, results = best_speed(partial(ours.generate_ids, rows, settings), num_tokens, turns)
        made = [one.ids for one in results]
        line[f"bertkit {precision}"] = speed if all(len(one) == NEW_TOKENS for one in made) else "ended early"
        if precision == "float32":
            line["bertkit's rows equal"] = sum(one == other for one, other in zip(made, expected, strict=True))
        taken = [] if peer is None else [peer.turn(precision, ids) for _ in range(1 + turns)][1:]
        if taken and taken[0].result is not None:
            line[f"CTranslate2 {precision}"] = round(num_tokens / min(turn.seconds for turn in taken), 1)
            if precision == "float32":
                same = sum(one == other for one, other in zip(taken[0].result, expected, strict=True))
                line["CTranslate2's rows equal"] = same
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", default="encoder-decoder,decoder")
    parser.add_argument("--batches", default="1,16")
    results, options = report.begin("generate", parser)
    torch.set_num_threads(options.threads)
    results["rows"] = []
    for name, theirs in models(options.quick).items():
        if name not in options.models.split(","):
            continue
        theirs.eval()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            write_tokenizer(Path(folder), theirs.config.vocab_size)
            ours = load_generator(folder)
            try:
                peer = Worker("generate", "load_ctranslate2", Path(folder), options.threads)
            except RuntimeError as error:
                peer, results["skipped"] = None, {"CTranslate2": str(error)}
            for batch_size in map(int, options.batches.split(",")):
                draw = np.random.default_rng(batch_size)
                ids = draw.integers(5, theirs.config.vocab_size - 1, (batch_size, PROMPT_TOKENS))
                line = measured(theirs, ours, peer, ids, options.rounds)
                results["rows"].append({"model": name, "batch": batch_size, **line})
                print(json.dumps(results["rows"][-1]), flush=True)
            if peer is not None:
                peer.close()
    report.finish(results, describe(results), options.out)


def describe(results: dict) -> str:
    """The results as Markdown."""
    names = list(results["rows"][0])
    cells = [[str(row.get(name, "")) for name in names] for row in results["rows"]]
    return "\n".join(
        [
            *report.heading("Generation: new tokens per second", results),
            f"Greedy, {NEW_TOKENS} new tokens after {PROMPT_TOKENS}, random weights, best of the turns.",
            "",
            report.markdown_table(names, *cells),
        ]
    )


if __name__ == "__main__":
    main()
