"""`python -m zkwire`, the same as the command `zkwire`."""

import sys

from zkwire.command.main import main

if __name__ == "__main__":
    sys.exit(main())
