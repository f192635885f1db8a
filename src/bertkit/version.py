"""The version of this package.

Takes: nothing.
Gives: its version.
May import: nothing.
"""

__version__ = "0.1.0"
