"""`python -m instant`, and the installed command."""

import sys


def main() -> int:
    """The command; what it is made of takes half a second to import, in which Ctrl-C is no error either."""
    try:
        from instant.cli import main as command
    except KeyboardInterrupt:
        print("instant: stopped.", file=sys.stderr)
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
