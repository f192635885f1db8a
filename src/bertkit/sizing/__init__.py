"""Measurement of how many requests a second a server takes on a machine.

Takes: arguments of `bertkit serve`, texts, and the milliseconds in which 99 % of requests have to be answered.
Gives: the highest rate of requests that holds, with its times and the memory of the server.
May import: errors.
"""
