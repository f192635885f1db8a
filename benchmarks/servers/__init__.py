"""Servers of one model over HTTP, each a program `python -m servers.NAME FOLDER PORT PRECISION THREADS`."""
