"""OpenVINO: length-sorted batches under a token budget, several in flight; pooling and normalisation in the graph."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from peers import batching

# split: a stream for each thread instead of one that uses them all.
SETTINGS = [
    {"tokens_per_batch": 512, "split": True},
    {"tokens_per_batch": 1024, "split": True},
    {"tokens_per_batch": 2048, "split": True},
    {"tokens_per_batch": 1024, "split": False},
    {"tokens_per_batch": 2048, "split": False},
]


def convert(published: Path, folder: Path) -> None:
    sys.modules["openvino_telemetry"] = None  # a benchmark sends nothing
    import openvino
    import torch
    from transformers import AutoModel

    class SentenceEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Attention spelled out: OpenVINO fuses it more tightly than the sdpa call (6 fewer transposes).
            self.bert = AutoModel.from_pretrained(published, attn_implementation="eager", dtype=torch.float32).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)

    input_ids = torch.randint(1000, 2000, (3, 7))
    example = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    with torch.no_grad():
        graph = openvino.convert_model(SentenceEncoder(), example_input=example)
    openvino.save_model(graph, folder / "model.xml", compress_to_fp16=False)
    shutil.copy(published / "tokenizer.json", folder)


def load(
    folder: Path, precision: str, threads: int, tokens_per_batch: int, split: bool
) -> Callable[[list[str]], np.ndarray]:
    import openvino

    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": threads if split else 1}
    if precision == "float32":
        config |= {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(folder / "model.xml", "CPU", config)
    chosen = compiled.get_property("INFERENCE_PRECISION_HINT")
    if precision == "bfloat16" and chosen != openvino.Type.bf16:
        raise RuntimeError(f"its default on this CPU is {chosen}")
    tokenizer = batching.open_tokenizer(folder)
    queue = openvino.AsyncInferQueue(compiled, 2 * config["NUM_STREAMS"])  # one is fed while one runs

    def embed(texts: list[str]) -> np.ndarray:
        ids = batching.token_ids(tokenizer, texts)
        vectors = np.empty((len(ids), compiled.output(0).partial_shape[1].get_length()), np.float32)

        def keep(request: openvino.InferRequest, indices: np.ndarray) -> None:
            vectors[indices] = request.get_output_tensor(0).data

        queue.set_callback(keep)
        for indices in batching.length_sorted_batches(ids, tokens_per_batch):
            queue.start_async(batching.pad([ids[index] for index in indices]), indices)
        queue.wait_all()
        return vectors

    return embed
