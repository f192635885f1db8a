"""Evaluation of a pre-trained model of either library: opened from its folder by bertkit, with the same inputs."""

import hashlib
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import texts
import torch
import torch.nn.functional as F
from trainers import ByName

import bertkit
from bertkit import Model
from bertkit.corpus.shards import open_shard
from bertkit.evidence import bootstrap_interval, read_suite, score_minimal_pairs
from bertkit.objectives import MaskedLM, PretrainingBatch
from bertkit.pretraining import held_out_batches

LENGTHS = (64, 128)  # of the sequences a loss is taken over: those that cpu-minutes and transformers train on
_T_TWO_DEGREES = 4.302652729911275  # Student's t, 97.5 %, two degrees of freedom


class Evaluator(ByName):
    """Evaluates models in a separate process, for `Worker`."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def losses(self, folder: Path, shard: Path, num_sequences: int) -> dict[str, dict[str, Any]]:
        """For each length the mean loss of the masked tokens in nats, and the contribution of each sequence; the mean
        of the contributions is the loss.

        Inputs and masks depend only on the vocabulary, the shard and the number; "inputs" is their hash.
        """
        model = bertkit.load(folder, device="cpu")
        found = {}
        for length in LENGTHS:
            parts = _parts(model, shard, length, num_sequences)
            by_sequence = _losses(model, parts)
            found[str(length)] = {
                "loss": float(by_sequence.mean()),
                "by_sequence": by_sequence.tolist(),
                "inputs": _hash(part.batch.input_ids for part in parts),
                "labels": _hash(part.labels for part in parts),
            }
        return found

    def minimal_pairs(self, folder: Path, limit: int) -> dict[str, Any] | None:
        """Accuracy on Zorro, the share of pairs whose grammatical sentence is more likely; None without the data."""
        suite = texts.DATA / "zorro"
        if not suite.is_dir():
            return None
        score = score_minimal_pairs(bertkit.load(folder, device="cpu"), read_suite(suite, limit), progress=False)
        return {
            "accuracy": score.accuracy,
            "interval": list(score.interval),
            "by_paradigm": {paradigm.name: paradigm.accuracy for paradigm in score.paradigms},
        }

    def loss_by_transformers(self, folder: Path, shard: Path, num_sequences: int) -> float:
        """The loss at the last of LENGTHS as transformers computes it, with padding; it must equal bertkit's."""
        from transformers import BertForMaskedLM

        parts = _parts(bertkit.load(folder, device="cpu"), shard, LENGTHS[-1], num_sequences)
        model = BertForMaskedLM.from_pretrained(folder).eval()
        total = 0.0
        for part in parts:
            labels = torch.full_like(part.batch.input_ids, -100)
            labels[part.masked_positions] = part.labels
            mask = part.batch.attention_mask()
            with torch.no_grad():
                loss = model(
                    part.batch.pad(part.batch.input_ids), mask.long(), labels=part.batch.pad(labels, -100)
                ).loss
            total += float(loss) * len(part.labels)
        return total / sum(len(part.labels) for part in parts)


def difference(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, Any]:
    """Our mean minus theirs, for two runs of each system with a value for each of the same items.

    It has two 95 % intervals: over runs, by Student's t with the pooled deviation of both systems' seeds; over items,
    by bootstrap of the differences of means over the runs. The difference is significant if both exclude 0.
    """
    a, b = np.array(ours), np.array(theirs)  # (2, num_items)
    found = float(a.mean() - b.mean())
    variances = [statistics.variance(values.mean(axis=1).tolist()) for values in (a, b)]
    half = _T_TWO_DEGREES * (sum(variances) / 2) ** 0.5
    intervals = {
        "over_runs": [found - half, found + half],
        "over_items": list(bootstrap_interval(a.mean(axis=0) - b.mean(axis=0))),
    }
    claimed = all(low > 0 or high < 0 for low, high in intervals.values())
    return {"difference": found, **intervals, "claimed": claimed}


def _parts(model: Model, shard: Path, length: int, num_sequences: int) -> list[PretrainingBatch]:
    return held_out_batches(
        open_shard(shard, model.tokenizer), model.tokenizer, MaskedLM(), max_seqlen=length,
        max_sequences=num_sequences, tokens_per_batch=4_096,
    )  # fmt: skip


@torch.no_grad()
def _losses(model: Model, parts: list[PretrainingBatch]) -> np.ndarray:
    """(num_sequences,) summed loss of each sequence, divided by the mean number of masked tokens."""
    model.network.eval()
    sums, num_masked = [], 0
    for part in parts:
        logits = model.network(part.batch, masked_positions=part.masked_positions).logits["masked_lm"]
        losses = F.cross_entropy(logits, part.labels, reduction="none").double()
        ends = part.batch.cu_seqlens[1:].long()
        sums.append(np.bincount(torch.searchsorted(ends, part.masked_positions, right=True), losses, len(part)))
        num_masked += len(part.labels)
    by_sequence = np.concatenate(sums)
    return by_sequence * len(by_sequence) / num_masked


def _hash(tensors: Iterable[torch.Tensor]) -> str:
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.numpy().tobytes())
    return state.hexdigest()[:16]
