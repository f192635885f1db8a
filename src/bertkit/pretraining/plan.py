"""What a pre-training run will take, before it is started: tokens, time, memory and files, measured by a short trial.

The corpus is read once, and a sample of its text is trained on for some seconds with the recipe, in a temporary folder.
Speed, memory and file sizes are those of this trial; numbers of tokens are scaled by characters.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from bertkit.corpus.documents import Reading, readable_sentences
from bertkit.corpus.shards import HELD_OUT, TokenShard, open_shard
from bertkit.device import resolve_device
from bertkit.errors import DataError
from bertkit.model import load
from bertkit.pretraining.feed import held_out_batches, make_feed
from bertkit.pretraining.network import TrainedModels, new_network, resolve_size, size_for
from bertkit.pretraining.recipe import Recipe
from bertkit.pretraining.run import HELD_OUT_SEQUENCES, Inputs, Pretraining
from bertkit.pretraining.text import check_texts
from bertkit.reports.recorded_run import logged_events
from bertkit.training import EVALUATIONS, SHARE_OF_TIME, checkpoints, evaluate

_SAMPLE_CHARACTERS, _BLOCK_CHARACTERS = 2_000_000, 10_000
_TOKENS_PER_STEP, _FEWEST_STEPS = 8_192, 2  # of the trial
_NEVER = 1_000_000_000  # steps
_NUM_BATCHES = 20  # batches whose lengths are counted


@dataclass(frozen=True)
class Plan:
    """The expected cost of a run."""

    size: str | None  # of a new model; None: a checkpoint's
    num_parameters: int
    num_characters: int  # of the corpus
    num_tokens: int  # of the corpus, estimated
    shard_bytes: int  # the corpus as tokens, estimated
    tokens_per_step: int
    num_steps: int
    epochs: float
    padding_saved: float  # share of a batch that would be padding if all its sequences were as long as its longest
    tokens_per_second: float
    hours: float
    memory_bytes: int  # highest so far of this process; on a GPU of its tensors
    checkpoint_bytes: int  # one checkpoint: model, optimizer and state
    suggested_size: str  # for the time of the run on the cores of this machine


@dataclass(frozen=True)
class _Trial:
    """Measured with the sequences of one stage of the run."""

    num_parameters: int
    tokens_per_character: float
    bytes_per_token: float
    tokens_per_sequence: float
    sequences_per_token: float  # of the corpus, in an epoch: a token is in no, one or several sentence pairs
    padding_saved: float
    tokens_per_second: float
    checkpoint_bytes: int
    seconds_per_held_out_sequence: float  # of an evaluation


def plan(
    recipe: Recipe,
    inputs: Inputs,
    *,
    device: str = "auto",
    seconds: float = 20.0,
    log_line: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Plan a run by a trial of ``seconds`` for each of its stages.

    Raises:
        UsageError, DataError: as `Pretraining.start`.
    """
    check_texts(inputs.corpus, inputs.held_out, recipe.data, inputs.column)
    network = None if inputs.model is not None else new_network(recipe, inputs.model)
    size = None if network is None else resolve_size(recipe)
    with tempfile.TemporaryDirectory(prefix="bertkit-plan-") as folder:
        log_line(f"reading {', '.join(map(str, inputs.corpus))}")
        num_characters, is_whole = _write_sample(inputs, recipe, Path(folder) / "sample.txt")
        trials = []
        for number, longest in enumerate(recipe.data.max_seqlens()):
            log_line(f"training for {seconds:g} seconds on sequences of up to {longest} tokens")
            run = Path(folder) / f"run-{number}"
            trial = _trial_recipe(recipe, size, longest)
            trials.append(_try(trial, inputs, Path(folder) / "sample.txt", run, device, seconds))
    first = trials[0]
    shares = [1.0] if len(trials) == 1 else [1 - recipe.data.final_share, recipe.data.final_share]
    batch_size, training = recipe.training.batch_size, recipe.training
    per_step = batch_size * sum(share * trial.tokens_per_sequence for share, trial in zip(shares, trials, strict=True))
    rate = 1 / sum(
        share * batch_size * trial.tokens_per_sequence / per_step / trial.tokens_per_second
        for share, trial in zip(shares, trials, strict=True)
    )
    seconds_per_step = per_step / rate
    seconds_to_evaluate = HELD_OUT_SEQUENCES * first.seconds_per_held_out_sequence  # at most
    if training.evaluate_every is not None:
        seconds_per_step += seconds_to_evaluate / training.evaluate_every
        evaluating = 0.0
    else:
        evaluating = min(EVALUATIONS, training.num_steps or EVALUATIONS) * seconds_to_evaluate
    if training.num_steps is not None:
        num_steps, seconds = training.num_steps, training.num_steps * seconds_per_step
        total = seconds + min(evaluating, seconds * SHARE_OF_TIME / (1 - SHARE_OF_TIME))
    else:
        assert training.minutes is not None
        total = 60 * training.minutes
        num_steps = round(max(0.0, total - min(evaluating, total * SHARE_OF_TIME)) / seconds_per_step)
    num_tokens = num_characters * first.tokens_per_character
    num_trained = num_tokens if inputs.held_out else num_tokens * (1 - recipe.data.held_out_share)
    num_parameters = first.num_parameters
    if network is not None and inputs.vocabulary is None and not is_whole:  # a sample has fewer words
        num_parameters = sum(parameter.numel() for parameter in network.parameters())
    return Plan(
        size=size,
        num_parameters=num_parameters,
        num_characters=num_characters,
        num_tokens=round(num_tokens),
        shard_bytes=round(num_tokens * first.bytes_per_token),
        tokens_per_step=round(per_step),
        num_steps=num_steps,
        epochs=num_steps
        * batch_size
        * sum(share / trial.sequences_per_token for share, trial in zip(shares, trials, strict=True))
        / num_trained,
        padding_saved=sum(share * trial.padding_saved for share, trial in zip(shares, trials, strict=True)),
        tokens_per_second=rate,
        hours=total / 3_600,
        memory_bytes=_memory(resolve_device(device)),
        checkpoint_bytes=first.checkpoint_bytes,
        suggested_size=size_for(total / 60),
    )


def _write_sample(inputs: Inputs, recipe: Recipe, path: Path) -> tuple[int, bool]:
    """Write blocks of the corpus drawn at random, one sentence per line.

    Returns:
        The number of characters of the corpus, and True if the sample is the whole of it.
    """
    draw = np.random.default_rng(recipe.training.seed)
    kept: list[tuple[float, str]] = []  # blocks with random numbers; the lowest stay
    num_characters = num_kept = 0
    for block in _blocks(inputs, recipe):
        kept.append((float(draw.random()), block))
        num_characters += len(block)
        num_kept += len(block)
        if num_kept > 2 * _SAMPLE_CHARACTERS:
            kept.sort()
            while num_kept > _SAMPLE_CHARACTERS:
                num_kept -= len(kept.pop()[1])
    if not kept:
        raise DataError(f"{', '.join(map(str, inputs.corpus))}: no readable text")
    blocks = [block for _, block in kept]
    if len(blocks) == 1 and inputs.held_out:  # the trial holds out a part of the sample
        sentences = blocks[0].splitlines(keepends=True)
        blocks = ["".join(sentences[::2]), "".join(sentences[1::2])]
    path.write_text("\n".join(blocks), encoding="utf-8", newline="\n")
    return num_characters, num_kept == num_characters


def _blocks(inputs: Inputs, recipe: Recipe) -> Iterator[str]:
    """Neighboring sentences of one document, each with its line break."""
    block: list[str] = []
    size = 0
    sentences = readable_sentences(inputs.corpus, Reading(recipe.data.layout, inputs.column))
    for sentence in sentences:
        if block and (sentence.starts_document or size >= _BLOCK_CHARACTERS):
            yield "".join(block)
            block, size = [], 0
        block.append(sentence.text + "\n")
        size += len(block[-1])
    if block:
        yield "".join(block)


def _trial_recipe(recipe: Recipe, size: str | None, longest: int) -> Recipe:
    """The recipe for one stage of the run, in small steps and without evaluations; it is to be stopped."""
    data = replace(recipe.data, layout="lines", max_seqlen=longest, final_max_seqlen=None, held_out_share=0.05)
    training = replace(
        recipe.training, num_steps=_NEVER, minutes=None, log_every=1, evaluate_every=_NEVER, save_every=_NEVER,
        batch_size=max(1, min(recipe.training.batch_size, _TOKENS_PER_STEP // longest)),
    )  # fmt: skip
    model = recipe.model if size is None else replace(recipe.model, size=size)
    return replace(
        recipe, model=model, data=data, objective=recipe.objective.at(0.5), training=training, samples=(), expected=()
    )


def _try(trial: Recipe, inputs: Inputs, sample: Path, run: Path, device: str, seconds: float) -> _Trial:
    """Train on the sample in the folder ``run`` for some seconds, and for two steps at least."""
    calls: list[float] = []

    def should_stop() -> bool:
        calls.append(time.monotonic())
        return len(calls) > _FEWEST_STEPS and calls[-1] - calls[0] > seconds

    trained = Pretraining(
        run,
        trial,
        replace(inputs, corpus=(sample,), held_out=(), column=None),
        log_line=lambda line: None,
        device=device,
    )
    trained.start(resume=False, should_stop=should_stop)
    events = logged_events(run)
    steps = [event for event in events if event["event"] == "step"]
    middle, last = steps[(len(steps) - 1) // 2], steps[-1]  # the first steps compile kernels
    folder = checkpoints(run)[-1] / "model"
    models = TrainedModels.of(trial, load(folder, device="cpu"), folder)
    tokenizer = models.model.tokenizer
    shard = open_shard(run / "shard", tokenizer)
    feed = make_feed(
        shard,
        tokenizer,
        trial.data,
        trial.objective,
        batch_size=trial.training.batch_size,
        seed=trial.training.seed,
        rank=0,
        num_ranks=1,
    )
    lengths, position = [], 0
    for _ in range(_NUM_BATCHES):
        lengths.append(np.diff(feed.batch(position, 0.0).batch.cu_seqlens))
        position = feed.next_position(position, 0.0)
    padded = sum(of_batch.max() * len(of_batch) for of_batch in lengths)
    num_characters = sum(len(line) + 1 for line in sample.read_text(encoding="utf-8").splitlines() if line)
    num_tokens = sum(
        open_shard(folder, tokenizer).manifest["num_tokens"] for folder in (run / "shard", run / "shard" / HELD_OUT)
    )
    return _Trial(
        num_parameters=next(event["num_parameters"] for event in events if event["event"] == "start"),
        tokens_per_character=num_tokens / num_characters,
        bytes_per_token=_size(run / "shard") / num_tokens,
        tokens_per_sequence=float(np.concatenate(lengths).mean()),
        sequences_per_token=feed.loader.sources[0].num_examples(0) / len(shard.tokens),
        padding_saved=float(1 - np.concatenate(lengths).sum() / padded),
        tokens_per_second=(last["tokens"] - middle["tokens"]) / (last["seconds"] - middle["seconds"]),
        checkpoint_bytes=_size(checkpoints(run)[-1]),
        seconds_per_held_out_sequence=_evaluation_seconds(
            models, trial, open_shard(run / "shard" / HELD_OUT, tokenizer), resolve_device(device)
        ),
    )


def _evaluation_seconds(models: TrainedModels, trial: Recipe, held_out: TokenShard, device: torch.device) -> float:
    """Seconds of an evaluation for each sequence, after the first ones of the trial compiled the kernels."""
    parts = held_out_batches(
        held_out, models.model.tokenizer, trial.objective, max_seqlen=trial.data.max_seqlen,
        max_sequences=HELD_OUT_SEQUENCES, tokens_per_batch=trial.training.most_tokens(device),
    )  # fmt: skip
    parts, network = [part.to(device) for part in parts], models.network.to(device)
    started = time.monotonic()
    evaluate(network, trial.objective.task, parts, dtype=getattr(torch, trial.training.precision))
    return (time.monotonic() - started) / sum(len(part.batch.cu_seqlens) - 1 for part in parts)


def _size(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _memory(device: torch.device) -> int:
    """Highest memory of this process so far; on a GPU that of its tensors."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1_024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
