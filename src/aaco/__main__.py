"""`python -m aaco` is `aaco`."""

from aaco.cli import main

if __name__ == "__main__":
    main()
