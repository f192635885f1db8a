"""bertkit mcp"""

from pathlib import Path

from bertkit.cli.index import STORE


def command(*, store: Path = STORE, answer: str | None = None, device: str = "auto") -> None:
    """Serve an index to AI assistants over the Model Context Protocol, over standard input and output.

    Parameters
    ----------
    store
        The folder of the index.
    answer
        A question answering model, for the tool "answer".
    device
        auto, cpu, cuda or mps.
    """
    from bertkit.integrations.mcp import mcp_server
    from bertkit.model import load
    from bertkit.search.index import Index

    with Index.open(store, device=device) as index:
        mcp_server(index, None if answer is None else load(answer, device=device)).run("stdio")
