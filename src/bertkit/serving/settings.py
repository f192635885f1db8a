"""Limits of a server: sizes of requests, of the queue, and times."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSettings:
    """Limits of a server. Sizes are checked before any work is done."""

    api_keys: tuple[str, ...] = ()  # allowed bearer tokens; (): no token required
    accept_token_ids: bool = False  # on /v1/embeddings, accept ids of the model's own tokenizer
    cors_origins: tuple[str, ...] = ()  # origins of pages in browsers that may send requests; "*": all
    root_path: str = ""  # prefix of all paths, such as "/bert", behind a proxy; requests may have it or not
    max_body_bytes: int = 8_000_000
    max_body_bytes_in_progress: int = 256_000_000  # of all requests; small bodies are accepted nevertheless
    max_inputs: int = 2_048  # per request, as for OpenAI
    max_concurrent_requests: int = 512  # more are rejected with 429
    max_queue_inputs: int = 16_384  # of all requests in progress
    max_queue_tokens: int = 1_000_000  # waiting for the encoder
    request_timeout_seconds: float = 60.0  # from the last byte of a request to its answer
    max_answer_bytes: int = 256_000_000  # estimated, of answers that can be far larger than their requests, together
    receive_timeout_seconds: float = 10.0  # for the headers, and for each part of a body
    receive_bytes_per_second: int = 10_000  # of a body after the first receive_timeout_seconds
    send_timeout_seconds: float = 60.0  # in which a client has to read a part of an answer
    send_bytes_per_second: int = 10_000  # that it has to read on average
    drain_timeout_seconds: float = 30.0  # for the requests in progress when the server is stopped
