"""Check that the results for a text are bit-identical regardless of the other texts."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

import numpy as np

from bertkit.architectures import Network, initialize, prepare
from bertkit.batch import Batch
from bertkit.checkpoint import SentenceSettings
from bertkit.device import weights_dtype
from bertkit.inference.embed import EmbedOptions, embed, embed_one
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner
from bertkit.later import Tensor
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import BertConfig

_WIDTHS = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1_536}  # of MiniLM
_NUM_LAYERS, _NUM_LABELS, _NUM_TEXTS, _LONGEST = 2, 3, 24, 120
_WORDS = tuple(f"w{number}" for number in range(100))
_HEAD = "sequence_classification"


@dataclass(frozen=True)
class EqualityCheck:
    """Result of the check on this machine, at one precision.

    Attributes:
        num_different: number of texts whose vector or logits differ from those computed alone.
        largest_difference: largest absolute difference.
    """

    precision: str
    num_texts: int
    num_different: int
    largest_difference: float


def check_equality(precision: str, device: str = "cpu") -> EqualityCheck:
    """Compare vectors and logits of texts alone, in one call, and in one call in another order.

    The model is small, with MiniLM's widths and random weights.
    """
    network = deepcopy(_network()).to(device=device, dtype=weights_dtype(precision))
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS])
    runner = Runner(network, tokenizer, prepare(network.encoder, precision))
    texts = _texts()
    alone = np.stack([np.concatenate([_vector(runner, text), _logits(runner, [text])[0]]) for text in texts])
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = np.empty_like(alone)
    shuffled[order] = _vectors_and_logits(runner, [texts[number] for number in order])
    together = np.stack([_vectors_and_logits(runner, texts), shuffled])
    is_different = (together.view(np.uint32) != alone.view(np.uint32)) | ~np.isfinite(together)
    return EqualityCheck(
        precision, len(texts), int(is_different.any(axis=(0, 2)).sum()), float(np.abs(together - alone).max())
    )


@cache
def _network() -> Network:
    config = BertConfig(
        vocab_size=len(_WORDS) + 5, num_hidden_layers=_NUM_LAYERS, max_position_embeddings=2 * _LONGEST, **_WIDTHS
    )
    network = Network(config, [_HEAD], num_labels=_NUM_LABELS).eval()
    initialize(network, config, seed=0)
    return network


def _texts() -> list[str]:
    """Texts of all lengths, most of them short."""
    draw = np.random.default_rng(0)
    lengths = np.geomspace(1, _LONGEST, _NUM_TEXTS).astype(int)
    return [" ".join(draw.choice(_WORDS, length)) for length in draw.permutation(lengths)]


def _vectors_and_logits(runner: Runner, texts: Sequence[str]) -> np.ndarray:
    """(N, D + C) of N texts in one call."""
    vectors = embed(runner, SentenceSettings(), texts, EmbedOptions(progress=False), InferenceReport())
    return np.concatenate([vectors, _logits(runner, texts)], axis=1)


def _vector(runner: Runner, text: str) -> np.ndarray:
    return embed_one(runner, SentenceSettings(), text, EmbedOptions(), InferenceReport())


def _logits(runner: Runner, texts: Sequence[str]) -> np.ndarray:
    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        return runner.network.head_logits(_HEAD, runner.encoder(batch, with_pooled=True), batch).float()

    return runner.run(runner.tokenizer.encode_batch(texts), forward).cpu().numpy()
