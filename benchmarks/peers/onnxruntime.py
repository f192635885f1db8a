"""ONNX Runtime: length-sorted batches under a token budget, one session for each thread; pooling in the graph."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peers import batching

if TYPE_CHECKING:
    import onnxruntime

SETTINGS = [{"tokens_per_batch": 512}, {"tokens_per_batch": 1024}, {"tokens_per_batch": 2048}]


def convert(published: Path, folder: Path) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    axes = {0: "batch", 1: "length"}
    input_ids = torch.randint(1000, 2000, (3, 7))
    with torch.no_grad():
        torch.onnx.export(
            batching.padded_encoder(published), (input_ids, torch.ones_like(input_ids)), str(folder / "model.onnx"),
            input_names=["input_ids", "attention_mask"], output_names=["vectors"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "vectors": {0: "batch"}}, dynamo=False,
        )  # fmt: skip
    shutil.copy(published / "tokenizer.json", folder)


def convert_int8(published: Path, folder: Path) -> None:
    """Write a model with int8 weights per channel, and activations quantized as they occur, as its documentation
    recommends for Transformers."""
    from onnxruntime.quantization import quantize_dynamic

    convert(published, folder)
    quantize_dynamic(folder / "model.onnx", folder / "rounded.onnx", per_channel=True, reduce_range=_saturates())
    (folder / "rounded.onnx").replace(folder / "model.onnx")


def _saturates() -> bool:
    """Whether its products of 8 bits are added in 16 bits, for which its documentation recommends 7-bit weights."""
    from peers import cpu_has

    return not (cpu_has("avx512_vnni") or cpu_has("avx_vnni"))


def load(folder: Path, precision: str, threads: int) -> Callable[..., np.ndarray]:
    session, tokenizer, pool = _open(folder, 1), batching.open_tokenizer(folder), ThreadPoolExecutor(threads)

    def embed(texts: list[str], tokens_per_batch: int) -> np.ndarray:
        ids = batching.token_ids(tokenizer, texts)
        batches = batching.length_sorted_batches(ids, tokens_per_batch)
        vectors = pool.map(lambda indices: _vectors(session, [ids[index] for index in indices]), batches)
        return np.concatenate(list(vectors))[np.argsort(np.concatenate(batches))]

    return embed


def load_query(folder: Path, precision: str, threads: int) -> Callable[[str], np.ndarray]:
    session, tokenizer = _open(folder, threads), batching.open_tokenizer(folder)
    return lambda text: _vectors(session, [tokenizer.encode(text).ids])[0]


def _open(folder: Path, threads: int) -> "onnxruntime.InferenceSession":
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])


def _vectors(session: "onnxruntime.InferenceSession", rows: list[list[int]]) -> np.ndarray:
    input_ids, attention_mask = batching.pad(rows)
    return session.run(None, {"input_ids": input_ids, "attention_mask": attention_mask})[0]
