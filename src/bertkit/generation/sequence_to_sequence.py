"""Text generation by encoder-decoder models."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertkit.checkpoint.encoder_decoder import EncoderDecoderCheckpoint, save_encoder_decoder
from bertkit.checkpoint.generation_rules import end_ids, ending_of
from bertkit.errors import UsageError
from bertkit.generation.decoding import CachedDecoding, PreparedOutput
from bertkit.generation.engine import Decoding
from bertkit.generation.generator import Generator, check_lengths
from bertkit.generation.settings import GenerationSettings
from bertkit.tokenizer.tokenizer import listed_texts
from bertkit.transformer import PreparedDecoder, PreparedTransformer, Recorder
from bertkit.transformer.kernels import inference_kernels


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
        save_encoder_decoder(self.checkpoint, directory, overwrite=overwrite, parameters=parameters)

    def record_training(self, task: str, metrics: dict[str, float]) -> None:
        self.checkpoint.settings = {"task": task, "metrics": metrics}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Sources with their special tokens."""
        texts = listed_texts(texts)
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
        longest, num_positions = self.max_lengths
        check_lengths("source", inputs, longest)
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

    def decoding(self, inputs: Sequence[np.ndarray], precision: str) -> Decoding:
        network, batch = self.checkpoint.network, self.batch(inputs)

        def prepare(precision: str) -> tuple[PreparedDecoder, PreparedOutput, PreparedTransformer]:
            decoder = PreparedDecoder(network.decoder, precision)
            output = PreparedOutput(network.head, network.decoder.embeddings.word.weight, decoder)
            return decoder, output, PreparedTransformer(network.encoder, precision)

        decoder, output, encoder = self._kept(precision, network, prepare)
        with torch.inference_mode(), inference_kernels():
            sources = network.as_sources(batch, encoder(batch).last_hidden_state)
        return CachedDecoding(
            decoder,
            output,
            lambda number: decoder.start(number, *sources, range(number)),  # a row for each source
        )
