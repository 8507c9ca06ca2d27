"""`python -m fencepost`: the command line, for whoever has the interpreter and not the script."""

from __future__ import annotations

import sys

from fencepost.cli import main

if __name__ == "__main__":
    sys.exit(main())
