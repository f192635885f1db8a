"""Vocabulary extension of a trained model: words to add, the tokenizer, and their embeddings.

Takes: a tokenizer and texts of a domain; a network.
Gives: the words that shorten the texts most; a tokenizer and a network with these words.
May import: errors, tokenizer, architectures.
"""

from bertkit.vocabulary_extension.domain_words import DomainWord, extend_vocabulary, find_domain_words
from bertkit.vocabulary_extension.embeddings import extend_embeddings

__all__ = ["DomainWord", "extend_embeddings", "extend_vocabulary", "find_domain_words"]
