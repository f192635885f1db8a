"""sentence-transformers behind FastAPI, as most tutorials write it: a route that encodes, in FastAPI's threads."""

import sys

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

folder, port, precision, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": precision})
app = FastAPI()


class Body(BaseModel):
    """Body of /embed."""

    inputs: list[str]


@app.post("/embed")
def embed(body: Body) -> list[list[float]]:
    """One vector for each text."""
    return model.encode(body.inputs, normalize_embeddings=True).tolist()


if __name__ == "__main__":
    uvicorn.run(app, port=int(port), log_level="warning")
