"""Settings of text generation: greedy search, beam search, or sampling."""

from dataclasses import dataclass
from typing import Annotated

from bertkit.errors import UsageError
from bertkit.tasks.field_types import AboveZero, Count, Number, Range, Seed, check_field_types

_Probability = Annotated[float, Range("a probability above 0 and up to 1", lambda value: 0 < value <= 1)]


@dataclass(frozen=True)
class GenerationSettings:
    """The default is greedy search: the most likely token at each step.

    Parameters
    ----------
    max_new_tokens
        Maximum number of new tokens, by default 128; always limited to the positions that the model has left.
    num_beams
        Hypotheses kept at each step of beam search; 1: greedy, or sampling.
    length_penalty
        Log probabilities of beams are divided by length ** length_penalty; only with beams.
    temperature
        Sample, with logits divided by this; by default the most likely token is chosen.
    top_k
        Sample from this number of most likely tokens; by default from all.
    top_p
        Sample from the smallest set of tokens with this total probability; by default from all.
    seed
        Seed of sampling, below 2**63, by default 0: text i uses random numbers of (seed, i).
    precision
        Precision of matrix products: float32, bfloat16, float16 (only GPUs) or int8 (only the CPU).
    num_candidates
        Number of most likely tokens to report for each step; not with beams.
    stop
        Texts that end generation when completed, and are kept at its end; not with beams.
    """

    max_new_tokens: Count | None = None
    num_beams: Count = 1
    length_penalty: float = 1.0
    temperature: AboveZero | None = None
    top_k: Count | None = None
    top_p: _Probability | None = None
    seed: Seed | None = None
    precision: str = "float32"
    num_candidates: Number = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.stop, list):
            object.__setattr__(self, "stop", tuple(self.stop))
        check_field_types(self)
        if self.num_beams > 1 and self.temperature is not None:
            raise UsageError("beam search does not sample: give num_beams or temperature, not both")
        if self.num_beams > 1 and self.num_candidates:
            raise UsageError("candidates are not reported for beams: leave num_beams at 1")
        if self.num_beams > 1 and self.stop:
            raise UsageError("stop is not supported for beams: leave num_beams at 1")
        if not all(self.stop):
            raise UsageError("stop has an empty text, which would end every text: remove it")
        if self.temperature is None and (self.top_k or self.top_p):
            raise UsageError("top_k and top_p require sampling: give a temperature too, such as 1.0")
        if self.temperature is None and self.seed is not None:
            raise UsageError(f"seed={self.seed} requires sampling: give a temperature too, such as 1.0")
        if self.num_beams == 1 and self.length_penalty != 1:
            raise UsageError(f"length_penalty={self.length_penalty} is for beams: give num_beams too, such as 4")
