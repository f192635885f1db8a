"""Embedded store in a folder: records in SQLite, vectors in append-only files that are mapped into memory."""
