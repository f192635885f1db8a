"""Text generation by causal language models and encoder-decoder models."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.checkpoint.config_file import read_config
from bertkit.checkpoint.encoder_decoder import (
    EncoderDecoderCheckpoint,
    is_encoder_decoder,
    open_encoder_decoder,
    save_encoder_decoder,
)
from bertkit.checkpoint.generation_rules import (
    Ending,
    end_ids,
    ending_of,
    rules_not_applied,
)
from bertkit.checkpoint.saving import save_checkpoint
from bertkit.device import resolve_device
from bertkit.errors import UsageError
from bertkit.generation.beam import beam_search
from bertkit.generation.decoding import (
    CachedDecoding,
    DecodingInTurns,
    PreparedOutput,
    Turn,
    UncachedDecoding,
    batch_of_ids,
)
from bertkit.generation.engine import Decoding, Generated, generate_ids
from bertkit.generation.settings import GenerationSettings
from bertkit.locate import locate, transformer_folder
from bertkit.model import Model, load
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.older_files import ELSEWHERE
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.transformer import EncoderConfig, PreparedBertEncoder, PreparedDecoder, Recorder
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.prepared import WeightsAsTheyAre

_USUAL_TOKENS, _ROWS = 128, 16
"""Default maximum number of new tokens; number of texts generated at the same time."""


@dataclass(frozen=True)
class GeneratedText:
    """The generated text for one prompt or source."""

    text: str
    score: float  # log probability of its tokens; for beams divided by length ** length_penalty
    num_tokens: int
    has_ended: bool  # False: cut off at max_new_tokens, or stopped by a text of ``stop``
    candidates: list[list[tuple[str, float]]]  # the likeliest tokens of each step with their probabilities


def load_generator(name: str | Path, *, device: str = "cpu") -> "Causal | SequenceToSequence":
    """Open a model for text generation: GPT-2, BERT with ``is_decoder``, Marian, or a pair of BERTs.

    Rules of its generation_config.json that would change the tokens and are not applied issue a UserWarning.

    Args:
        device: "cpu", "cuda", "cuda:1", "mps", or "auto". Texts are bit-identical in any batch only on the CPU.

    Raises:
        CheckpointError: no such model, or one that cannot be opened.
        UsageError: a bidirectional model, or a device that this machine lacks.
    """
    folder = locate(name)
    if is_encoder_decoder(transformer_folder(folder)):
        checkpoint = open_encoder_decoder(folder)
        checkpoint.network.to(resolve_device(device))
        _warn_of_rules(checkpoint.generation, name)
        return SequenceToSequence(checkpoint)
    if not _is_causal(read_config(transformer_folder(folder)).transformer):
        raise UsageError(
            f"{name} reads both sides of a token and cannot continue a text: choose a left-to-right model (GPT-2, BERT "
            "with is_decoder) or an encoder-decoder"
        )
    model = load(folder, device=device, heads=["masked_lm"])
    _warn_of_rules(model.checkpoint.generation, name)
    return Causal(model)


def writes_text(name: str | Path) -> bool:
    """Whether `load_generator` opens a model, by its config.json.

    Raises:
        CheckpointError: no such model, or a config.json that cannot be read.
    """
    folder = transformer_folder(locate(name))
    return is_encoder_decoder(folder) or _is_causal(read_config(folder).transformer)


def _is_causal(config: EncoderConfig) -> bool:
    return getattr(config, "is_decoder", False)


def _warn_of_rules(rules: dict[str, Any], name: str | Path) -> None:
    if ignored := rules_not_applied(rules):
        warnings.warn(
            f"{name} generates without these rules of its generation_config.json, which are not supported: "
            f"{', '.join(ignored)}; texts may differ from those of transformers",
            stacklevel=3,
        )


def _check_lengths(what: str, inputs: Sequence[np.ndarray], num_positions: int) -> None:
    for index, own in enumerate(inputs):
        if not 1 <= len(own) <= num_positions:
            raise UsageError(
                f"{what} {index} has {len(own)} tokens: expected from 1 to the model's {num_positions} positions"
            )


def _at_once(work: Callable[[], Any]) -> Any:
    return work()


class Generator(ABC):
    """Base class: texts in groups of similar length, results in the given order."""

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # of what it generates
    network: nn.Module  # to train
    first_ids: list[int]  # before a target in training
    max_lengths: tuple[int, int]  # maximum tokens of a source, 0 for a model without sources, and of a target
    ending: Ending  # ids that end a text

    def __init__(self) -> None:
        self._prepared: dict[str, tuple[WeightsAsTheyAre, Any]] = {}

    def generate(self, texts: Sequence[str], settings: GenerationSettings | None = None) -> list[GeneratedText]:
        """Generate a text for each text, independent of the others.

        Raises:
            UsageError: a text that is empty or longer than the model's positions, unfitting settings, or a str or a
                table instead of texts.
        """
        results = self.generate_ids(self.encode(texts), settings or GenerationSettings())
        return [self._as_text(one) for one in results]

    def generate_ids(
        self, inputs: Sequence[np.ndarray], settings: GenerationSettings, *, turn: Turn = _at_once
    ) -> list[Generated]:
        """`generate` for token ids, (n,) int64 for each text; every step is computed within a call of ``turn``."""
        results: list[Generated] = [Generated() for _ in inputs]
        prompts, limits = self.prompts_and_limits(inputs, settings)
        order = sorted(range(len(inputs)), key=lambda index: len(inputs[index]))
        if settings.temperature is not None:
            order = list(range(len(inputs)))  # random numbers follow this order
        for first in range(0, len(order), _ROWS):
            group = order[first : first + _ROWS]
            group_inputs = [inputs[index] for index in group]
            group_prompts, group_limits = [prompts[index] for index in group], [limits[index] for index in group]
            decoding = DecodingInTurns(turn(partial(self.decoding, group_inputs, settings.precision)), turn)
            if settings.num_beams > 1:
                made = beam_search(decoding, group_prompts, group_limits, settings, self.ending)
            else:
                stops = partial(self._is_stopped, settings.stop)
                made = generate_ids(decoding, group_prompts, group_limits, settings, self.ending, first, stops)
            for index, one in zip(group, made, strict=True):
                results[index] = one
        return results

    def _is_stopped(self, stops: Sequence[str], ids: list[int]) -> bool:
        return bool(stops) and any(stop in self.decode(ids) for stop in stops)

    def _as_text(self, one: Generated) -> GeneratedText:
        candidates = [[(self.spelled(token), prob) for token, prob in step] for step in one.candidates]
        return GeneratedText(self.decode(one.ids), one.score, len(one.ids), one.has_ended, candidates)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids, without end ids and ids beyond the vocabulary, for which some models have rows."""
        size, ends = len(self.target_tokenizer.vocabulary), self.ending.end_ids
        return self.target_tokenizer.decode([token for token in ids if token < size and token not in ends])

    def spelled(self, token: int) -> str:
        """The spelling of a token; empty for an id beyond the vocabulary."""
        tokens = self.target_tokenizer.vocabulary.tokens
        return tokens[token].removeprefix(ELSEWHERE) if token < len(tokens) else ""

    def _limits(self, lengths: Sequence[int], num_positions: int, settings: GenerationSettings) -> list[int]:
        """Maximum number of new tokens of each prompt; the last token needs no position."""
        return [min(settings.max_new_tokens or _USUAL_TOKENS, num_positions - length + 1) for length in lengths]

    def _kept(self, precision: str, network: Any, prepare: Any) -> Any:
        """The network prepared at a precision; prepared again if the weights changed."""
        weights, prepared = self._prepared.get(precision, (None, None))
        if weights is None or not weights.are_unchanged():
            weights, prepared = WeightsAsTheyAre(network), prepare(precision)
            self._prepared[precision] = weights, prepared
        return prepared

    def batch(self, rows: Sequence[np.ndarray]) -> Batch:
        """`batch_of_ids` on the device of the network."""
        return batch_of_ids(rows).to(next(self.network.parameters()).device)

    @abstractmethod
    def save(
        self, directory: str | Path, *, overwrite: bool = False, parameters: Mapping[str, Tensor] | None = None
    ) -> None:
        """Write a folder that transformers opens; arguments and errors as in `save_checkpoint`."""

    @abstractmethod
    def record_training(self, task: str, metrics: dict[str, float]) -> None:
        """Store the results of a training run in the model, if its format supports it."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """(n,) int64 input ids of each text."""

    @abstractmethod
    def prompts_and_limits(
        self, inputs: Sequence[np.ndarray], settings: GenerationSettings
    ) -> tuple[list[np.ndarray], list[int]]:
        """Initial tokens of each row, and the maximum number of new tokens.

        Raises:
            UsageError: an input that is empty or too long.
        """

    @abstractmethod
    def decoding(self, inputs: Sequence[np.ndarray], precision: str, *, cached: bool = True) -> Decoding:
        """Decoding of a group of inputs."""


class Causal(Generator):
    """A left-to-right language model: it continues prompts, which end with an id of its generation_config.json, or else
    with the separator of its tokenizer."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.network = model, model.network
        self.tokenizer = self.target_tokenizer = model.tokenizer
        self.first_ids = [model.tokenizer.cls_id] if model.tokenizer.engine.template.wraps else []
        self.max_lengths = 0, model.config.max_position_embeddings
        rules = model.checkpoint.generation
        ends = end_ids(rules) or (model.tokenizer.sep_id,)
        self.ending = ending_of(rules, ends, model.config.vocab_size)

    def save(
        self, directory: str | Path, *, overwrite: bool = False, parameters: Mapping[str, Tensor] | None = None
    ) -> None:
        """As `Generator.save`."""
        save_checkpoint(self.model.checkpoint, directory, overwrite=overwrite, parameters=parameters)

    def record_training(self, task: str, metrics: dict[str, float]) -> None:
        """As `Generator.record_training`: not supported."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Prompts: without special tokens in GPT-2's layout, else after [CLS]."""
        ids = self.tokenizer.plain_ids(texts)
        for index, (text, own) in enumerate(zip(texts, ids, strict=True)):
            if not len(own):
                raise UsageError(f"prompt {index} is empty ({text!r:.40}): expected some text to continue")
        return [np.concatenate([np.array(self.first_ids, np.int64), own]) for own in ids]

    def prompts_and_limits(
        self, inputs: Sequence[np.ndarray], settings: GenerationSettings
    ) -> tuple[list[np.ndarray], list[int]]:
        """As `Generator.prompts_and_limits`."""
        num_positions = self.max_lengths[1]
        _check_lengths("prompt", inputs, num_positions)
        return list(inputs), self._limits([len(own) for own in inputs], num_positions, settings)

    def decoding(self, inputs: Sequence[np.ndarray], precision: str, *, cached: bool = True) -> Decoding:
        """As `Generator.decoding`."""
        network = self.model.network
        head, encoder = network.require_head("masked_lm"), network.encoder
        if cached:

            def prepare(precision: str) -> tuple[PreparedDecoder, PreparedOutput]:
                final_norm = getattr(encoder, "final_norm", None)
                decoder = PreparedDecoder(encoder, precision, final_norm)
                return decoder, PreparedOutput(head, encoder.embeddings.word.weight, decoder)

            decoder, output = self._kept(precision, network, prepare)
            return CachedDecoding(decoder, output, decoder.start)

        @torch.inference_mode()
        def logits(rows: list[np.ndarray], prompts: np.ndarray) -> Tensor:
            batch = self.batch(rows)
            hidden = encoder(batch, with_pooled=False).last_hidden_state[batch.cu_seqlens[1:].long() - 1]
            return head(hidden, encoder.embeddings.word.weight)

        return UncachedDecoding(logits)

    @torch.inference_mode()
    def log_probs(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The log probability of each token but the first, given those before it: (n - 1,) float32 for each text."""
        network = self.model.network
        results = []
        for own in inputs:
            logits = network(self.batch([own])).logits["masked_lm"].cpu()
            following = torch.from_numpy(own[1:])[:, None]
            results.append(logits[:-1].float().log_softmax(-1).gather(1, following)[:, 0].numpy())
        return results


class SequenceToSequence(Generator):
    """An encoder-decoder model, which generates a target for each source."""

    def __init__(self, checkpoint: EncoderDecoderCheckpoint) -> None:
        super().__init__()
        self.checkpoint, self.tokenizer, self.network = checkpoint, checkpoint.tokenizer, checkpoint.network
        self.target_tokenizer = checkpoint.target_tokenizer or checkpoint.tokenizer
        config = checkpoint.network.config
        self.first_ids = [config.start_id]
        self.max_lengths = config.encoder.max_position_embeddings, config.decoder.max_position_embeddings
        ends = end_ids(checkpoint.generation) or (config.end_id,)
        self.ending = ending_of(checkpoint.generation, ends, config.decoder.vocab_size)

    def save(
        self, directory: str | Path, *, overwrite: bool = False, parameters: Mapping[str, Tensor] | None = None
    ) -> None:
        """As `Generator.save`."""
        save_encoder_decoder(self.checkpoint, directory, overwrite=overwrite, parameters=parameters)

    def record_training(self, task: str, metrics: dict[str, float]) -> None:
        """As `Generator.record_training`."""
        self.checkpoint.settings = {"task": task, "metrics": metrics}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Sources with their special tokens."""
        refuse_one_text(texts)
        for index, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise UsageError(f"source {index} is {text!r:.40}: expected some text")
        if not self.tokenizer.engine.template.wraps:
            end = [self.tokenizer.sep_id]
            return [np.concatenate([own, end]) for own in self.tokenizer.plain_ids(list(texts))]
        encodings = self.tokenizer.encode_batch(list(texts), with_offsets=False)
        bounds = encodings.cu_seqlens
        return [encodings.input_ids[bounds[i] : bounds[i + 1]].astype(np.int64) for i in range(len(texts))]

    def prompts_and_limits(
        self, inputs: Sequence[np.ndarray], settings: GenerationSettings
    ) -> tuple[list[np.ndarray], list[int]]:
        """As `Generator.prompts_and_limits`."""
        longest, num_positions = self.max_lengths
        _check_lengths("source", inputs, longest)
        return [np.array(self.first_ids) for _ in inputs], self._limits([1] * len(inputs), num_positions, settings)

    @torch.inference_mode()
    def cross_attention(self, source: np.ndarray, target: Sequence[int]) -> list[Tensor]:
        """Cross-attention of each generated token to the source: (H, T, S) per layer.

        Args:
            source: (S,) int64, from `encode`.
            target: T generated ids.
        """
        network, recorder = self.checkpoint.network, Recorder()
        before = self.batch([np.array([network.config.start_id, *target[:-1]], np.int64)])
        network(self.batch([source]), target=before, recorder=recorder)
        return [layer.cross_attention_probs[0].cpu() for layer in recorder.layers]

    def decoding(self, inputs: Sequence[np.ndarray], precision: str, *, cached: bool = True) -> Decoding:
        """As `Generator.decoding`."""
        network = self.checkpoint.network
        word, head, batch = network.decoder.embeddings.word.weight, network.head, self.batch(inputs)
        if cached:

            def prepare(precision: str) -> tuple[PreparedDecoder, PreparedOutput, PreparedBertEncoder]:
                decoder = PreparedDecoder(network.decoder, precision)
                output = PreparedOutput(head, word, decoder)
                return decoder, output, PreparedBertEncoder(network.encoder, precision)

            decoder, output, encoder = self._kept(precision, network, prepare)
            with torch.inference_mode(), inference_kernels():
                sources = network.as_sources(batch, encoder(batch).last_hidden_state)
            return CachedDecoding(
                decoder,
                output,
                lambda number: decoder.start(number, *sources, range(number)),  # a row for each source
            )

        with torch.inference_mode():
            sources = network.encode(batch)

        @torch.inference_mode()
        def logits(rows: list[np.ndarray], prompts: np.ndarray) -> Tensor:
            batch = self.batch(rows)
            parts = sources.states.split(list(sources.seqlens))
            states = torch.cat([parts[prompt] for prompt in prompts])
            hidden = network.decoder(batch, states, [sources.seqlens[prompt] for prompt in prompts])
            return head(hidden[batch.cu_seqlens[1:].long() - 1], word)

        return UncachedDecoding(logits)
