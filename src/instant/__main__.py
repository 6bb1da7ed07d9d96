"""`python -m instant`: the command."""

import sys

from instant.cli import main

if __name__ == "__main__":
    sys.exit(main())
