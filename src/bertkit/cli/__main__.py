"""python -m bertkit.cli"""

from bertkit.cli import main

main()
