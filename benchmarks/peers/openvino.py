"""OpenVINO: length-sorted batches under a token budget, several in flight; pooling and normalization in the graph."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peers import batching

if TYPE_CHECKING:
    import openvino

SETTINGS = [{"tokens_per_batch": 512}, {"tokens_per_batch": 1024}, {"tokens_per_batch": 2048}]
NUM_CALIBRATION_TEXTS = 200


def convert(published: Path, folder: Path) -> None:
    _silence()
    _save(_graph(published), published, folder)


def convert_int8(published: Path, folder: Path) -> None:
    """Write a model with int8 weights per channel, and int8 activations with scales from texts of the documentation, as
    NNCF does for Transformers."""
    _silence()
    import nncf
    from texts import documentation, shuffled

    calibration_texts = shuffled(documentation())[-NUM_CALIBRATION_TEXTS:]  # what is embedded comes from the other end
    ids = batching.token_ids(batching.open_tokenizer(published), calibration_texts)
    examples = [dict(zip(("input_ids", "attention_mask"), batching.pad([row]), strict=True)) for row in ids]
    graph = nncf.quantize(
        _graph(published), nncf.Dataset(examples), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(examples)
    )
    _save(graph, published, folder)


def load(folder: Path, precision: str, threads: int) -> Callable[..., np.ndarray]:
    # A stream for each thread: one that uses them all was slower (MiniLM, documentation passages).
    compiled = _compile(folder, precision, {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": threads})
    import openvino

    tokenizer = batching.open_tokenizer(folder)
    queue = openvino.AsyncInferQueue(compiled, 2 * threads)  # for each stream one is fed while one runs

    def embed(texts: list[str], tokens_per_batch: int) -> np.ndarray:
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


def load_query(folder: Path, precision: str, threads: int) -> Callable[[str], np.ndarray]:
    hints = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    request = _compile(folder, precision, hints).create_infer_request()
    tokenizer = batching.open_tokenizer(folder)
    return lambda text: request.infer(batching.pad([tokenizer.encode(text).ids]))[0][0].copy()


def _compile(folder: Path, precision: str, config: dict) -> "openvino.CompiledModel":
    import openvino

    if precision == "float32":
        config |= {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(folder / "model.xml", "CPU", config)
    chosen = compiled.get_property("INFERENCE_PRECISION_HINT")
    if precision == "bfloat16" and chosen != openvino.Type.bf16:
        raise RuntimeError(f"its default on this CPU is {chosen}")
    return compiled


def _graph(published: Path) -> "openvino.Model":
    import openvino
    import torch

    input_ids = torch.randint(1000, 2000, (3, 7))
    example = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    with torch.no_grad():
        return openvino.convert_model(batching.padded_encoder(published), example_input=example)


def _save(graph: "openvino.Model", published: Path, folder: Path) -> None:
    import openvino

    openvino.save_model(graph, folder / "model.xml", compress_to_fp16=False)
    shutil.copy(published / "tokenizer.json", folder)


def _silence() -> None:
    """Disable telemetry, before OpenVINO is imported."""
    sys.modules["openvino_telemetry"] = None
