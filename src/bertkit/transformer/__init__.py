"""Transformer encoders and decoders.

Takes: Batch.
Gives: hidden states (total_tokens, hidden_size), one per token, and the pooled [CLS] of each sequence if the encoder
    has a pooler.
May import: later, errors, device, executor, compiled, batch.

A layer is described once and written four times:

- `layer_config` describes it; the config of a family (`config`, `modernbert`, `qwen3`, ...) returns the description.
- `layer` is the layer with weights, and its loop; of `attention` and `feed_forward`, with `window` and `rotary`,
  `relative_bias` or `relative` for positions. `embeddings` stand before it; `encoder` and `decoder` hold both.
- `modules`: what networks consist of, with the names of torch; their parameters are torch's, or arrays for inference
  on a CPU without torch.
- `albert`, `deberta`, `directional`: encoders that use the layer in another way.
- `prepared`: the layer for inference, with weights packed for a precision, and its loop.
- `few_rows`: the prepared layers as one compiled function, for a short text or a step of generation.
- `bertkit.export.layers`: the layer as a graph.
- `kernels`: the steps of a layer; begin with `kernels/choices`, which says where each runs.
- `recorder` keeps what the layers compute, for inspection; `cuda_graphs` repeats small batches on a GPU.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.transformer.albert import AlbertConfig as AlbertConfig
    from bertkit.transformer.albert import AlbertEncoder as AlbertEncoder
    from bertkit.transformer.config import SIZES as SIZES
    from bertkit.transformer.config import BertConfig as BertConfig
    from bertkit.transformer.deberta import DebertaConfig as DebertaConfig
    from bertkit.transformer.deberta import DebertaEncoder as DebertaEncoder
    from bertkit.transformer.decoder import Decoder as Decoder
    from bertkit.transformer.directional import DirectionalEncoder as DirectionalEncoder
    from bertkit.transformer.encoder import Encoder as Encoder
    from bertkit.transformer.eurobert import EuroBertConfig as EuroBertConfig
    from bertkit.transformer.gpt2 import Gpt2Config as Gpt2Config
    from bertkit.transformer.interface import EncoderConfig as EncoderConfig
    from bertkit.transformer.interface import EncoderOutput as EncoderOutput
    from bertkit.transformer.interface import PreparedEncoder as PreparedEncoder
    from bertkit.transformer.kernels.dispatch import linear_for as linear_for
    from bertkit.transformer.kernels.linear import PlainLinear as PlainLinear
    from bertkit.transformer.layer_config import DisentangledPositions as DisentangledPositions
    from bertkit.transformer.layer_config import DistanceBias as DistanceBias
    from bertkit.transformer.layer_config import LayerConfig as LayerConfig
    from bertkit.transformer.layer_config import RotaryPositions as RotaryPositions
    from bertkit.transformer.modernbert import ModernBertConfig as ModernBertConfig
    from bertkit.transformer.neobert import NeoBertConfig as NeoBertConfig
    from bertkit.transformer.nomic_bert import GteConfig as GteConfig
    from bertkit.transformer.nomic_bert import NomicBertConfig as NomicBertConfig
    from bertkit.transformer.original import TransformerConfig as TransformerConfig
    from bertkit.transformer.prepared.decoder import PreparedDecoder as PreparedDecoder
    from bertkit.transformer.prepared.encoder import PreparedTransformer as PreparedTransformer
    from bertkit.transformer.qwen3 import Qwen3Config as Qwen3Config
    from bertkit.transformer.recorder import LayerRecord as LayerRecord
    from bertkit.transformer.recorder import Recorder as Recorder
    from bertkit.transformer.relative_bias import RelativeBiasEncoder as RelativeBiasEncoder

__getattr__, __dir__ = on_demand(__name__)
