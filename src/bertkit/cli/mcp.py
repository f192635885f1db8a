"""bertkit mcp"""

from bertkit.cli.index import STORE, Store
from bertkit.cli.output import Device


def command(*, store: Store = STORE, answer: str | None = None, device: Device = "auto") -> None:
    """Serve an index to AI assistants over the Model Context Protocol, over standard input and output.

    Parameters
    ----------
    answer
        A question answering model, for the tool "answer".
    """
    from bertkit.integrations.mcp import mcp_server
    from bertkit.model import load
    from bertkit.search.index import Index

    with Index.open(store, device=device) as index:
        mcp_server(index, None if answer is None else load(answer, device=device)).run("stdio")
