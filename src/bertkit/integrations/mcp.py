"""An MCP server over an index: the tools search, get and answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bertkit.errors import BertkitError, DependencyError
from bertkit.model import Model
from bertkit.search.index import Index
from bertkit.search.passage_records import context_and_text

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    raise DependencyError("the MCP server needs its SDK: pip install 'bertkit[mcp]'") from None


def mcp_server(index: Index, answerer: Model | None = None) -> MCPServer:
    """A server with search tools for an index, and a tool "answer" if a question answering model is given."""
    server = MCPServer("bertkit", instructions="Search indexed documents by words and meaning.")

    @server.tool()
    @_with_reason()
    def search(query: str, k: int = 5) -> list[dict[str, Any]]:
        """Find the passages of the indexed documents that fit a question or a few words, best first.

        Passages contain each "quoted phrase" of the query, no word after -, and are of files named after file:.
        """
        return [
            {
                "id": one.id,
                "document": one.document_id,
                "start": one.start,
                "end": one.end,
                "context": one.context,
                "text": one.text,
                "score": one.score,
            }
            | ({"file_state": one.file_state} if one.file_state != "current" else {})
            for one in index.search(query, k)
        ]

    @server.tool()
    @_with_reason()
    def get(ids: list[str]) -> list[dict[str, Any]]:
        """Get passages by the ids that search returned."""
        passages = [(one, *context_and_text(one)) for one in index.store.get(ids)]
        return [
            {
                "id": one.id,
                "document": one.document_id,
                "start": one.start,
                "end": one.end,
                "context": context,
                "text": text,
            }
            for one, context, text in passages
        ]

    if answerer is not None:
        model = answerer

        @server.tool()
        @_with_reason()
        def answer(question: str, k: int = 5) -> list[dict[str, Any]]:
            """Answer a question with spans of the indexed documents, the most probable first."""
            return [
                {
                    "answer": one.text,
                    "document": one.document_id,
                    "start": one.start,
                    "end": one.end,
                    "probability": one.probability,
                    "passage": one.result.text,
                }
                for one in index.answer(question, model, k)
            ]

    return server


@contextmanager
def _with_reason() -> Iterator[None]:
    """Errors of bertkit as those of a tool, whose message the client gets."""
    try:
        yield
    except BertkitError as error:
        raise ToolError(str(error)) from None
