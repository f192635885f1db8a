"""Tokens per second of generation, next to transformers' generate, with random weights of published sizes.

    python benchmarks/generate.py [--quick]

Greedy, 64 new tokens for each text, at batch 1 and 16: an encoder-decoder of 6 + 6 layers, 512 wide (Marian's layout,
32 source tokens), and a decoder of BERT base's size (GPT-2's layout, 32 prompt tokens). transformers runs in float32
with its default cache; ours in float32, bfloat16 and int8. The best of three turns, one after the other. In float32 the
tokens are compared too. ``--quick`` takes smaller models and one turn.
"""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

from bertkit.device import cpu_name
from bertkit.generation import GenerationSettings, load_generator

NEW_TOKENS, PROMPT_TOKENS, TURNS = 64, 32, 1 if "--quick" in sys.argv else 3


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """A vocabulary of numbered words, in the two files that a folder needs."""
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


def best_seconds(work: Any) -> tuple[float, Any]:
    """The shortest of several turns, and what it returned."""
    times, result = [], None
    for _ in range(TURNS):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return min(times), result


def main() -> None:
    """Print a line of JSON for each model, batch size and program."""
    print(json.dumps({"processor": cpu_name(), "threads": torch.get_num_threads(), "torch": torch.__version__}))
    for name, theirs in models("--quick" in sys.argv).items():
        theirs.eval()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            write_tokenizer(Path(folder), theirs.config.vocab_size)
            ours = load_generator(folder)
            for batch_size in (1, 16):
                draw = np.random.default_rng(batch_size)
                ids = draw.integers(5, theirs.config.vocab_size, (batch_size, PROMPT_TOKENS))
                inputs = torch.from_numpy(ids)

                def run_theirs(inputs: torch.Tensor = inputs, theirs: Any = theirs) -> Any:
                    with torch.inference_mode():
                        return theirs.generate(
                            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, num_beams=1,
                            min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, pad_token_id=0, bad_words_ids=None,
                        )  # fmt: skip

                seconds, made = best_seconds(run_theirs)
                expected = made[:, -NEW_TOKENS:].tolist()
                speeds = {"transformers float32": batch_size * NEW_TOKENS / seconds}
                for precision in ("float32", "bfloat16", "int8"):
                    settings = GenerationSettings(max_new_tokens=NEW_TOKENS, precision=precision)
                    rows = list(ids)
                    ours.generate_ids(rows, GenerationSettings(max_new_tokens=2, precision=precision))  # prepares
                    seconds, results = best_seconds(partial(ours.generate_ids, rows, settings))
                    num_tokens = sum(len(one.ids) for one in results)
                    speeds[f"bertkit {precision}"] = num_tokens / seconds
                    if precision == "float32":
                        same = [one.ids == other for one, other in zip(results, expected, strict=True)]
                line = {name: round(speed, 1) for name, speed in speeds.items()}
                print(json.dumps({"model": name, "batch": batch_size, "same_tokens": sum(same), **line}), flush=True)


if __name__ == "__main__":
    main()
