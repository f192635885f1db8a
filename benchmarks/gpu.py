"""All checks and measurements for a GPU, in one run of at most ten minutes.

    python benchmarks/gpu.py [--device cuda] [--quick] [--minutes 9.5] [--only PATTERN] [--out FOLDER]

Checks: attention and its gradients in every dtype and window against float64 on the CPU; vectors of all-MiniLM-L6-v2,
gradients of a small BERT and losses of a short pre-training and of every kind of fine-tuning against float32 on the
CPU; that embedding does not wait for the GPU except for its results; that CUDA graphs of small batches change no
result; that generation with a key-value cache has the logits of the CPU, and waits only for its tokens; that
pre-training is compiled once, with the same losses; that search has the results of the CPU; with
BERTKIT_BATCH_INVARIANT=1, that vectors, logits and hidden states of six families have the same bits in any batch.

Figures: milliseconds of each kernel of attention; tokens per second of compiled pre-training, compared with
transformers (SDPA, compiled and not, without padding), with the share of the chip's peak; texts per second of embedding
compared with sentence-transformers in bfloat16; the time that the same bits in any batch take; milliseconds of search
among a million vectors compared with the CPU; fine-tuning BERT-base for sentiment classification compared with
transformers' Trainer; tokens per second of generation; grammar learned from novels in minutes.

The results are written after each part. When the time is over, the part in progress is stopped, and the figures that it
has yielded are kept. `--only` runs some parts, and keeps the results of the other parts from earlier runs of the day.

`PYTHONPATH=tests/gpu:tests python benchmarks/gpu.py --quick` runs every part on small models and a simulated GPU: a
test of this script and of the checks, whose speeds mean nothing. Needs ../shared/data.
"""

import argparse
import fnmatch
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import gpu_attention
import gpu_generation
import gpu_grammar
import gpu_invariance
import gpu_tasks
import numpy as np
import report
import texts
import torch
import torch._dynamo
from finetune_tasks import TASKS
from models import BERT_BASE, MINILM, published_folder
from pretrained import corpus, held_out
from turns import say

import bertkit
from bertkit import BertConfig, Model, Tokenizer
from bertkit.architectures import prepare
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.locate import locate
from bertkit.neighbors import DeviceScan, RowMask, encode_rows, nearest, top_k
from bertkit.neighbors.device_rows import DeviceRows
from bertkit.neighbors.device_top_k import device_top_k
from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length
from bertkit.transformer.cuda_graphs import GraphedEncoder

PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense bfloat16, from the makers' data sheets
BOUNDS = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 4e-3}
"""Maximum allowed differences of vectors of length 1 from those of the CPU in float32."""
LARGEST_GRADIENT_DIFFERENCE, LARGEST_LOSS_DIFFERENCE = 1e-3, 0.05
SEQUENCES = ('objective.name="masked-lm"', "data.final_share=0", "training.log_every=1",
             "training.evaluate_every=1000", "training.save_every=1000")  # fmt: skip
WITHOUT_DROPOUT = ("model.config.hidden_dropout_prob=0", "model.config.attention_probs_dropout_prob=0")


class Measurements:
    """The parts, in the order of a run. A part returns its figures, or yields them as they are measured."""

    def __init__(self, device: str, quick: bool, work: Path) -> None:
        self.device, self.quick, self.work = device, quick, work
        self.precision, self.is_cuda = "bfloat16", device.startswith("cuda")

    def parts(self) -> dict[str, Callable[[], dict[str, Any] | Iterator[dict[str, Any]]]]:
        lengths = (128,) if self.quick else (128, 512)
        return {
            "attention": lambda: gpu_attention.checks(self.device, self.quick),
            "vectors": self.vectors,
            "invariance": self.invariance,
            "waits": self.waits,
            "graphs": self.graphs,
            "generation": lambda: gpu_generation.checks(self.device, self.quick, list(BOUNDS)),
            "gradients": self.gradients,
            "losses": self.losses,
            "tasks": lambda: gpu_tasks.checks(self.device, self.quick, MINILM),
            "compilation": self.compilation,
            "embedding": self.embedding,
            "search": self.search,
            "fine-tuning": self.finetuning,
            "grammar": self.grammar,
            **{f"pre-training at {length}": (lambda at=length: self.pretraining(at)) for length in lengths},
        }

    def vectors(self) -> dict[str, Any]:
        """Largest differences of vectors."""
        passages = texts.shuffled(texts.documentation())[: 40 if self.quick else 400]
        expected = bertkit.load(MINILM, device="cpu").embed(passages, normalize=True)
        found: dict[str, Any] = {}
        for precision in BOUNDS:
            model = bertkit.load(MINILM, device=self.device, precision=precision)
            found[precision] = float(np.abs(model.embed(passages, normalize=True) - expected).max())
            found[f"{precision} holds"] = found[precision] <= BOUNDS[precision]
        return found

    def invariance(self) -> Iterator[dict[str, Any]]:
        """As `gpu_invariance.checks`."""
        passages = texts.shuffled(texts.documentation())[: 40 if self.quick else 4_000]
        return gpu_invariance.checks(self.device, passages, self.quick)

    def waits(self) -> dict[str, Any]:
        """How often embedding waits for the GPU, other than for results, as torch reports it."""
        passages = texts.shuffled(texts.documentation())[: 40 if self.quick else 2_000]
        model = bertkit.load(MINILM, device=self.device, precision=self.precision)
        return self._waits_of(lambda: model.embed(passages, on_long="truncate"))

    def _waits_of(self, work: Callable[[], Any]) -> dict[str, Any]:
        reported = gpu_generation.waits(self.device, work)
        return {"number": len(reported), "holds": not reported, "first": reported[0][:200] if reported else "none"}

    def graphs(self) -> dict[str, Any]:
        """Largest difference of replayed from computed hidden states and pooled vectors, relative to the largest; and
        milliseconds of one short text."""
        model = bertkit.load(MINILM, device=self.device, precision=self.precision)
        encoder = prepare(model.encoder, self.precision)
        plain = encoder.prepared if isinstance(encoder, GraphedEncoder) else encoder
        passages, differences = texts.documentation()[:40], []
        for number in (1, 1, 2, 2, 3, 3, 5, 5, 8, 8, 1):  # a shape's second batch has other lengths
            first = len(differences) + number
            chosen = [passage[: 40 + 10 * (first + each) % 70] for each, passage in enumerate(passages[:number])]
            batch = bertkit.collate(model.tokenizer.encode_batch(chosen)).to(self.device)
            outputs = [one(batch) for one in (encoder, plain)]
            for part in ("last_hidden_state", "pooled"):
                ours, expected = (getattr(output, part) for output in outputs)
                differences.append(float((ours - expected).abs().max() / expected.abs().max()))
        batch = bertkit.collate(model.tokenizer.encode_batch(passages[:1], max_length=16, on_long="truncate"))
        replayed, computed = (
            1_000 * min(best_seconds(partial(self._encode, one, batch)) for _ in range(10)) for one in (encoder, plain)
        )
        holds = max(differences) <= BOUNDS["bfloat16"]
        return {"recorded": encoder is not plain, "largest difference": max(differences), "holds": holds,
                "replayed, ms": replayed, "computed, ms": computed}  # fmt: skip

    def _encode(self, encoder: Callable[..., Any], batch: bertkit.Batch) -> torch.Tensor:
        return encoder(batch.to(self.device)).last_hidden_state.cpu()

    def gradients(self) -> dict[str, Any]:
        """Largest difference of gradients, relative to the largest of the parameter."""
        tokenizer = Tokenizer.load(locate(MINILM))
        config = BertConfig.of_size("mini", vocab_size=len(tokenizer.vocabulary), hidden_dropout_prob=0.0,
                                    attention_probs_dropout_prob=0.0)  # fmt: skip
        network = Model.create(config, tokenizer, ("masked_lm",)).network.train()
        batch = bertkit.collate(tokenizer.encode_batch(texts.documentation()[:9], max_length=128, on_long="truncate"))
        gradients = {}
        for name, dtype in (("cpu", torch.float64), (self.device, torch.float32)):
            network = network.to(device=name, dtype=dtype).requires_grad_(True)
            network.zero_grad()
            logits = network(batch.to(torch.device(name))).logits["masked_lm"]
            torch.nn.functional.cross_entropy(logits.float(), batch.input_ids.long().to(logits.device)).backward()
            grads = [p.grad for p in network.parameters() if p.grad is not None]
            gradients[name, dtype] = [one.to("cpu", torch.float64, copy=True) for one in grads]  # `to` moves gradients
        reference, given = gradients.values()
        floor = 1e-3 * max(float(gradient.abs().max()) for gradient in reference)  # that of a key's bias is 0
        largest = max(
            float((a - b).abs().max() / a.abs().max().clamp_min(floor)) for a, b in zip(reference, given, strict=True)
        )
        return {"largest difference": largest, "holds": largest <= LARGEST_GRADIENT_DIFFERENCE}

    def losses(self) -> dict[str, Any]:
        """Largest difference of the losses of a run without dropout, in bfloat16, from float32 on the CPU."""
        steps = 8 if self.quick else 200
        changes = ("model.size=tiny", "training.batch_size=8", "data.max_seqlen=64",
                   "vocabulary.vocab_size=500", *WITHOUT_DROPOUT)  # fmt: skip
        ours, cpu = (
            self._run(f"losses-{precision}", changes, steps, where, precision)[0]
            for where, precision in ((self.device, self.precision), ("cpu", "float32"))
        )
        largest = max(abs(a["loss"] - b["loss"]) for a, b in zip(ours, cpu, strict=True))
        return {"steps": steps, "largest difference": largest, "holds": largest <= LARGEST_LOSS_DIFFERENCE}

    def compilation(self) -> dict[str, Any]:
        """Graphs compiled for a run, and the largest difference of its losses from those of a run that is not; only
        CUDA compiles."""
        steps = 8 if self.quick else 60
        changes = ("model.size=tiny", "training.batch_size=32", "data.max_seqlen=64", "training.tokens_per_part=1024",
                   "vocabulary.vocab_size=500", *WITHOUT_DROPOUT)  # fmt: skip
        counters = torch._dynamo.utils.counters["stats"]
        before = counters["unique_graphs"]
        compiled, plain = (
            self._run(f"compilation-{name}", changes, steps, self.device, self.precision, compile=compiles)[0]
            for name, compiles in (("compiled", self.is_cuda), ("plain", False))
        )
        number = counters["unique_graphs"] - before
        largest = max(abs(a["loss"] - b["loss"]) for a, b in zip(compiled, plain, strict=True))
        holds = number == int(self.is_cuda) and largest <= LARGEST_LOSS_DIFFERENCE
        return {"graphs": number, "largest difference": largest, "holds": holds}

    def pretraining(self, length: int) -> Iterator[dict[str, Any]]:
        """Real tokens per second of whole steps with batches of 256 sequences and all dropout as published, compiled,
        and the share of the chip's peak."""
        size, batch_size, steps = ("tiny", 8, 6) if self.quick else ("base", 256, 60 if length == 128 else 40)
        changes = (f"model.size={size}", f"training.batch_size={batch_size}", f"data.max_seqlen={length}",
                   "training.tokens_per_part=32768", f"vocabulary.vocab_size={500 if self.quick else 30_522}",
                   f"training.log_every={1 if self.quick else 10}")  # fmt: skip
        events, folder = self._run(
            f"pretraining-{length}", changes, steps, self.device, self.precision, compile=self.is_cuda
        )
        warm, last = events[len(events) // 2], events[-1]
        ours = (last["tokens"] - warm["tokens"]) / (last["seconds"] - warm["seconds"])
        model = bertkit.load(folder / "model", device="cpu")
        flops = flops_per_token(model.network, model.config, length)
        yield {"tokens a second": ours, "share of peak": share_of_peak(ours * flops, self.device)}
        best = 0.0
        for compiles in (False,) if self.quick else (False, True):  # compilation may take longer than there is time
            theirs = self._transformers_pretraining(folder / "model", length, batch_size, steps, compiles)
            best = max(best, theirs)
            yield {f"transformers{', compiled' * compiles}, tokens a second": theirs, "ratio": ours / best}

    def _transformers_pretraining(
        self, folder: Path, length: int, batch_size: int, steps: int, compiles: bool
    ) -> float:
        from transformers import AutoTokenizer, BertForMaskedLM, DataCollatorForLanguageModeling

        tokenizer = AutoTokenizer.from_pretrained(folder)
        network: Any = BertForMaskedLM.from_pretrained(folder, attn_implementation="sdpa").to(self.device).train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
        compiled = torch.compile(network) if compiles else network
        collate = DataCollatorForLanguageModeling(tokenizer)
        rows = tokenizer(texts.shuffled(texts.wikitext()), add_special_tokens=False)["input_ids"]
        ids, size = np.concatenate(rows), length - 2  # one after another: no padding
        of_part, loss, started = min(batch_size, 32_768 // length), torch.zeros(()), time.perf_counter()
        for number in range(steps * (batch_size // of_part)):
            starts = [(number * of_part + each) * size % (len(ids) - size) for each in range(of_part)]
            blocks = [[tokenizer.cls_token_id, *ids[start : start + size], tokenizer.sep_token_id] for start in starts]
            batch = collate([{"input_ids": block} for block in blocks]).to(self.device)
            with torch.autocast(self.device.split(":")[0], torch.bfloat16):
                loss = compiled(input_ids=batch["input_ids"], labels=batch["labels"]).loss
            (loss * of_part / batch_size).backward()
            step, more = divmod(number + 1, batch_size // of_part)
            if not more:
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if not more and step == steps // 2:  # compiled, and warm
                loss.item()
                started = time.perf_counter()
        loss.item()
        return (steps - steps // 2) * batch_size * length / (time.perf_counter() - started)

    def embedding(self) -> Iterator[dict[str, Any]]:
        """Texts per second from strings to vectors, the better of two passes."""
        from sentence_transformers import SentenceTransformer

        passages = texts.shuffled(texts.documentation())[: 200 if self.quick else None]
        for name in (MINILM,) if self.quick else (MINILM, BERT_BASE):
            folder = published_folder(name)
            model = bertkit.load(folder, device=self.device, precision=self.precision)
            ours = 4 * len(passages) / best_seconds(lambda: model.embed(passages * 4, on_long="truncate"))  # noqa: B023
            yield {f"{name}, texts a second": ours}
            theirs = SentenceTransformer(str(folder), device=self.device, model_kwargs={"torch_dtype": torch.bfloat16})
            theirs.encode(passages[:1_000], batch_size=256)
            seconds = best_seconds(lambda: theirs.encode(passages, batch_size=256), warm_up=False)  # noqa: B023
            yield {
                f"{name}, sentence-transformers": len(passages) / seconds,
                f"{name}, ratio": ours * seconds / len(passages),
            }

    def search(self) -> dict[str, Any]:
        """The nearest ten of 1,000 queries and of one among a million vectors, by top_k and by the scan of a store:
        differences from the CPU, waits as for embedding, and milliseconds, the better of two passes."""
        number, num_queries, width = (20_000, 100, 384) if self.quick else (1_000_000, 1_000, 384)
        draw, where = np.random.default_rng(0), torch.device(self.device)
        rows, queries = (draw.standard_normal((count, width), dtype=np.float32) for count in (number, num_queries))
        for vectors in (rows, queries):
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        blocks, mask, kept, scan = encode_rows(rows, "cosine"), RowMask.of(number), DeviceRows(where), DeviceScan(where)
        started = time.perf_counter()
        scores, _ = device_top_k(queries[:1], rows, 10, kept)
        found: dict[str, Any] = {"copy and first search, ms": 1_000 * (time.perf_counter() - started)}
        works: dict[str, Callable[[np.ndarray], Any]] = {
            "top_k": lambda asked: device_top_k(asked, rows, 10, kept),
            "store": lambda asked: nearest(asked, rows, blocks, 10, "cosine", mask, "int8", scan),
            "store on the CPU": lambda asked: nearest(asked, rows, blocks, 10, "cosine", mask),
        }
        torch.set_float32_matmul_precision("high")  # TF32 elsewhere
        try:
            (scores, ids), expected = works["top_k"](queries[:100]), top_k(queries[:100], rows, 10)
        finally:
            torch.set_float32_matmul_precision("highest")
        exact = np.einsum("qkd,qd->qk", rows[ids].astype(np.float64), queries[:100].astype(np.float64))
        largest = float(max(np.abs(scores - each).max() for each in (expected[0], exact)))
        found |= {"top_k, largest difference": largest, "top_k holds": largest <= 1e-5,
                  "different ids": int((ids != expected[1]).sum())}  # fmt: skip
        ours, cpu = ([one.positions.tolist() for one in works[name](queries)] for name in ("store", "store on the CPU"))
        proved = scan.nearest(queries, rows, 10, "cosine", mask)
        found |= {"store holds": ours == cpu, "queries left to the CPU": sum(one is None for one in proved)}
        for name in ("top_k", "store"):
            waits = self._waits_of(partial(works[name], queries))
            found |= {f"waits of {name}, {key}": value for key, value in waits.items()}
        for name, work in works.items():
            for asked in (queries, queries[:1]):
                found[f"{name}, queries: {len(asked)}, ms"] = 1_000 * best_seconds(partial(work, asked))
        found["top_k on the CPU, queries: 100, ms"] = 1_000 * best_seconds(lambda: top_k(queries[:100], rows, 10))
        return found

    def finetuning(self) -> Iterator[dict[str, Any]]:
        """Seconds of an epoch of SST-2 with a model of the size of BERT-base, from examples to trained weights."""
        train, _ = TASKS[0].read(TASKS[0])
        train, published = texts.shuffled(train)[: 300 if self.quick else None], published_folder(BERT_BASE)
        settings = FinetuningSettings.of(num_epochs=1, head="drawn", max_length=128, precision="bfloat16")
        run = Finetuning(self.work / "sst2", published, TASKS[0].settings.kind, settings, device=self.device,
                         log_line=lambda line: None, compare=False, resumable=False)  # fmt: skip
        started = time.perf_counter()
        run.start(train)
        ours = time.perf_counter() - started
        yield {"examples": len(train), "seconds": ours}
        from datasets import Dataset
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

        tokenizer = AutoTokenizer.from_pretrained(published)
        labels = sorted({str(example.label) for example in train})
        started = time.perf_counter()
        rows = Dataset.from_dict({
            "text": [example.text for example in train],
            "label": [labels.index(str(example.label)) for example in train],
        }).map(lambda part: tokenizer(part["text"], truncation=True, max_length=128), batched=True)  # fmt: skip
        network = AutoModelForSequenceClassification.from_pretrained(published, num_labels=len(labels))
        arguments = TrainingArguments(
            str(self.work / "trainer"), num_train_epochs=1, per_device_train_batch_size=32, bf16=True,
            report_to=[], save_strategy="no", disable_tqdm=True, train_sampling_strategy="group_by_length",
            dataloader_num_workers=0 if self.quick else 4,
        )  # fmt: skip
        Trainer(network, arguments, train_dataset=rows, processing_class=tokenizer).train()
        theirs = time.perf_counter() - started
        yield {"Trainer, seconds": theirs, "ratio": theirs / ours}

    def grammar(self) -> dict[str, Any]:
        """Zorro after minutes of pre-training on novels."""
        vocabulary = report.CACHE / "gpu-vocabulary-8192.txt"
        return gpu_grammar.learn(
            self.work / "grammar", self.device, self.quick, vocabulary if vocabulary.is_file() else None
        )

    def _run(
        self, name: str, changes: tuple[str, ...], steps: int, device: str, precision: str, *, compile: bool = False
    ) -> tuple[list[dict[str, Any]], Path]:
        """The step events of a short pre-training, and its folder."""
        folder = self.work / name
        more = (*SEQUENCES, *changes, f"training.precision={precision}")
        recipe = with_length(read_recipe("bert-2018", more), num_steps=steps, minutes=None, changes=more)
        size = next(change.partition("=")[2] for change in changes if change.startswith("vocabulary.vocab_size"))
        vocabulary = report.CACHE / f"gpu-vocabulary-{size}{'-quick' * self.quick}.txt"
        texts_read = corpus()[: 1 if self.quick else None]
        inputs = Inputs(texts_read, held_out()[:1], vocabulary if vocabulary.is_file() else None)
        Pretraining(folder, recipe, inputs, device=device, compile=compile, log_line=lambda line: None).start(
            resume=False
        )
        if not vocabulary.is_file():
            vocabulary.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / "vocab.txt", vocabulary)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["event"] == "step"], folder


def flops_per_token(network: torch.nn.Module, config: Any, length: int) -> float:
    """Floating point operations of a forward and a backward pass for a token, by the usual formula: 6 for a parameter
    that a token is multiplied with, and 12 x layers x width x length for attention (Chowdhery et al. 2022, appendix B).
    The head reads the masked tokens, 15 %."""
    width, tables = config.hidden_size, ("embeddings", "heads")
    number = sum(p.numel() for name, p in network.named_parameters() if not any(one in name for one in tables))
    number += 0.15 * width * (width + config.vocab_size)
    return 6 * number + 12 * config.num_hidden_layers * width * length


def share_of_peak(flops: float, device: str) -> float | None:
    """Share of the dense bfloat16 peak; None for a chip that is not in the table."""
    if not device.startswith("cuda"):
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops / peak for chip, peak in PEAK_FLOPS.items() if chip in name), None)


def best_seconds(work: Callable[[], Any], *, warm_up: bool = True) -> float:
    """The shorter time of two runs."""
    if warm_up:
        work()
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


@cache
def chip(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def describe(results: dict) -> str:
    rows = [
        [part, name, f"{value:.4g}" if isinstance(value, float) else str(value)]
        for part, found in results["parts"].items()
        for name, value in found.items()
    ]
    lines = [f"# {results['chip']}", "", report.markdown_table(["part", "figure", "value"], *rows)]
    return "\n".join([*lines, "", *report.skipped_lines(results)])


class OutOfTime(Exception):
    """The time of the run is over."""


def expire(*_: Any) -> None:
    raise OutOfTime("no time left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="small models and few examples, to test this script")
    parser.add_argument("--minutes", type=float, default=9.5, help="time of the run")
    parser.add_argument(
        "--only", metavar="PATTERN", default="*", help="parts of this name; * stands for any characters"
    )
    results, options = report.begin("gpu", parser, threads=os.cpu_count() or 2)
    results |= {"chip": chip(options.device), "quick": options.quick, "skipped": {}}
    results["parts"] = report.earlier_systems(results, options.out, "chip", "quick", name="parts")
    signal.signal(signal.SIGALRM, expire)
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as work:
        parts = Measurements(options.device, options.quick, Path(work)).parts()
        for name in fnmatch.filter(parts, options.only):
            for _ in carry_out(name, parts[name], end - time.monotonic(), results):
                report.write(results, describe(results), options.out)
    report.finish(results, describe(results), options.out)


def carry_out(name: str, part: Callable[[], Any], seconds_left: float, results: dict[str, Any]) -> Iterator[None]:
    """Add the figures of a part to the results, or the reason why it has none; yields after each addition."""
    if seconds_left <= 0:
        results["skipped"][name] = "no time left"
        yield
        return
    say(f"{name}: begins with {seconds_left:.0f} s left")
    results["parts"][name] = {}
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds_left)
        found = part()
        for figures in [found] if isinstance(found, dict) else found:
            results["parts"][name] |= figures
            yield
    except Exception as error:  # of any kind: a fault of one part must not cost the others
        results["skipped"][name] = f"{type(error).__name__}: {error!s:.300}"
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
