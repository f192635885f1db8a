"""An MCP server over an index: the tools search, get and answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError, DependencyError, UsageError
from bertkit.integrations.given import index_of, model_of
from bertkit.model import Model
from bertkit.search.filter_syntax import filter_of
from bertkit.search.index import Index
from bertkit.search.results import Result, result_of
from bertkit.version import __version__

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    raise DependencyError("the MCP server needs its SDK: pip install 'bertkit[mcp]'") from None


def mcp_server(index: Index | str | Path, answerer: Model | str | Path | None = None) -> MCPServer:
    """A server with search tools for an index, and a tool "answer" if a question answering model is given; both as
    objects or by name."""
    opened = index_of(index)
    server = MCPServer("bertkit", instructions="Search indexed documents by words and meaning.", version=__version__)

    @server.tool()
    @_with_reason()
    def search(query: str, k: int = 5, where: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Find the passages of the indexed documents that fit a question or a few words, best first.

        Passages contain each "quoted phrase" of the query, no word after -, and are of files named after file:. Those
        with the same text are one, and also_in names the other documents. where selects by metadata, as in
        {"year": {"$gte": 2021}, "kind": {"$in": ["a", "b"]}, "tags": {"$contains": "x"}}.
        """
        results = opened.search(query, k, where=filter_of(where) if where else None)
        if results.missing_keys:
            raise UsageError(results.note_of_keys)
        return [_as_json(one) | {"score": one.score} for one in results]

    @server.tool()
    @_with_reason()
    def get(ids: list[str]) -> list[dict[str, Any]]:
        """Get passages by the ids that search returned."""
        return [_as_json(result_of(0, 0, record, {}, str.split)) for record in opened.store.get(ids)]

    if answerer is not None:
        model = model_of(answerer)

        @server.tool()
        @_with_reason()
        def answer(question: str, k: int = 5) -> list[dict[str, Any]]:
            """Answer a question with spans of the indexed documents, the most probable first."""
            return [one.row | {"passage": one.result.text} for one in opened.answer(question, model, k)]

    return server


def _as_json(one: Result) -> dict[str, Any]:
    return {"id": one.id, **one.location, "context": one.context, "text": one.text, "metadata": dict(one.metadata)}


@contextmanager
def _with_reason() -> Iterator[None]:
    """Errors of bertkit as those of a tool, whose message the client gets."""
    try:
        yield
    except BertkitError as error:
        raise ToolError(str(error)) from None
