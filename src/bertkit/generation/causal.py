"""Text generation by left-to-right language models."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertkit.checkpoint.generation_rules import end_ids, ending_of
from bertkit.checkpoint.saving import save_checkpoint
from bertkit.errors import UsageError
from bertkit.generation.decoding import CachedDecoding, PreparedOutput
from bertkit.generation.engine import Decoding
from bertkit.generation.generator import Generator, check_lengths
from bertkit.generation.settings import GenerationSettings
from bertkit.model import Model, check_model
from bertkit.transformer import PreparedDecoder


class Causal(Generator):
    """A left-to-right language model: it continues prompts, which end with an id of its generation_config.json, or else
    with the separator of its tokenizer."""

    def __init__(self, model: Model) -> None:
        check_model(model)
        super().__init__()
        self.model, self.network = model, model.network
        self.tokenizer = self.target_tokenizer = model.tokenizer
        template = model.tokenizer.engine.template
        self.first_ids = [model.tokenizer.cls_id] if template.wraps and template.has_first else []
        self.max_lengths = 0, model.config.max_position_embeddings
        rules = model.checkpoint.generation
        ends = end_ids(rules) or (model.tokenizer.sep_id,)
        self.ending = ending_of(rules, ends, model.config.vocab_size)

    def save(
        self, directory: str | Path, *, overwrite: bool = False, parameters: Mapping[str, Tensor] | None = None
    ) -> None:
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
        num_positions = self.max_lengths[1]
        check_lengths("prompt", inputs, num_positions)
        return list(inputs), self._limits([len(own) for own in inputs], num_positions, settings)

    def decoding(self, inputs: Sequence[np.ndarray], precision: str) -> Decoding:
        network = self.model.network
        head, encoder = network.require_head("masked_lm"), network.encoder

        def prepare(precision: str) -> tuple[PreparedDecoder, PreparedOutput]:
            decoder = PreparedDecoder(encoder, precision)
            return decoder, PreparedOutput(head, encoder.embeddings.word.weight, decoder)

        decoder, output = self._kept(precision, network, prepare)
        return CachedDecoding(decoder, output, decoder.start)

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
