"""sentence-transformers behind LitServe with its batching: up to 64 requests, or what arrives within 5 ms."""

import sys
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

sys.modules["mcp"] = None  # LitServe's optional part for it does not start with the newer versions
import litserve  # noqa: E402

folder, port, precision, threads = sys.argv[1:]


class Embedding(litserve.LitAPI):
    """Texts of several requests in one call of `encode`."""

    def setup(self, device: str) -> None:
        torch.set_num_threads(int(threads))
        self.model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": precision})

    def decode_request(self, request: dict[str, Any]) -> list[str]:
        return request["inputs"]

    def predict(self, inputs: list[list[str]]) -> list[np.ndarray]:
        vectors = self.model.encode([text for texts in inputs for text in texts], normalize_embeddings=True)
        return np.split(vectors, np.cumsum([len(texts) for texts in inputs])[:-1])

    def encode_response(self, output: np.ndarray) -> list[list[float]]:
        return output.tolist()


if __name__ == "__main__":
    api = Embedding(api_path="/embed", max_batch_size=64, batch_timeout=0.005)
    litserve.LitServer(api, accelerator="cpu", timeout=120).run(
        host="127.0.0.1", port=int(port), generate_client_file=False, log_level="warning"
    )
