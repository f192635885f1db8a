"""The probability that one sentence follows another."""

from collections.abc import Sequence

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import OverLengthError, UsageError
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner, refuse_windows
from bertkit.later import Tensor
from bertkit.tasks.probabilities import softmax
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.tokenizer import listed_texts
from bertkit.transformer.kernels.arrays import floats


def next_sentence_probability(
    runner: Runner, texts: str | Sequence[str], following: str | Sequence[str], *, on_long: OnLong = "error"
) -> float | np.ndarray:
    """The probability that ``following`` comes after ``texts`` (Devlin et al. 2018, 3.1); (N,) float32 for lists.

    Raises:
        OverLengthError: a pair is too long under ``on_long="error"``.
        UsageError: a text and a list, lists of unequal length, or ``on_long="window"``.
    """
    if isinstance(texts, str) and isinstance(following, str):
        return float(_probabilities(runner, [texts], [following], on_long)[0])
    if isinstance(texts, str) or isinstance(following, str):
        raise UsageError("next_sentence_probability takes two texts or two lists of texts, got one of each")
    if following is None:  # which a tokenizer takes as texts alone
        raise UsageError("next_sentence_probability compares each text with a following one: following is None")
    return _probabilities(runner, listed_texts(texts), listed_texts(following), on_long)


def _probabilities(runner: Runner, texts: Sequence[str], following: Sequence[str], on_long: OnLong) -> np.ndarray:
    refuse_windows(on_long, "probabilities for a pair")
    try:
        encodings = runner.tokenizer.encode_batch(
            texts, following, max_length=runner.max_positions, on_long=on_long, with_offsets=False
        )
    except OverLengthError as error:
        advice = "shorten the two texts, or choose on_long='truncate'"
        raise error.with_advice(f"pair {error.index}", advice, error.index) from None
    InferenceReport.of(encodings, len(texts)).warn("shorten them to encode them in full")

    if not len(encodings):
        return np.empty(0, np.float32)

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        return runner.network.head_logits("next_sentence", runner.encoder(batch, first_only=True), batch)

    return softmax(floats(runner.run(encodings, forward)))[:, 0].astype(np.float32)
