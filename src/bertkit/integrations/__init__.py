"""Adapters for other frameworks, one file each, imported by name: LangChain, LlamaIndex, Haystack, MCP.

Takes: a model, an index or a store.
Gives: what the framework calls an embedding, a store, a retriever or a tool.
May import: errors, search, model.
"""
