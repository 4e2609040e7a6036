"""`python -m recipes`, the same as the command `zklock`."""

import sys

from recipes.command.main import main

if __name__ == "__main__":
    sys.exit(main())
