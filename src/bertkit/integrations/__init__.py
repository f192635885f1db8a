"""Adapters for other frameworks, one file each, imported by name: LangChain, LlamaIndex, Haystack, MCP,
mteb, Ray.

Takes: a model, an index or a store.
Gives: embeddings, stores, retrievers or tools of the framework.
May import: version, errors, locate, checkpoint, inference, words, search, model.
"""
