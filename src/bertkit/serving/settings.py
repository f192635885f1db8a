"""Limits of a server: sizes of requests, of the queue, and times."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSettings:
    """What a server accepts and how long it waits. Sizes are checked before any work is done."""

    api_keys: tuple[str, ...] = ()  # a request must have one of these as its bearer token; (): none is asked for
    accept_token_ids: bool = False  # on /v1/embeddings: ids, if they are what the model's own tokenizer gives
    max_body_bytes: int = 8_000_000
    max_inputs: int = 2_048  # of one request, as OpenAI has it
    max_characters_per_token: int = 250  # of one text, times the model's longest sequence; as text-embeddings-inference
    max_concurrent_requests: int = 512  # more are refused with 429
    max_queue_inputs: int = 16_384  # of all requests in progress
    max_queue_tokens: int = 1_000_000  # waiting for the encoder
    request_timeout_seconds: float = 60.0  # from the last byte of a request to its answer
    receive_timeout_seconds: float = 10.0  # for the headers, and for each part of a body
    drain_timeout_seconds: float = 30.0  # for the requests in progress when the server is stopped
