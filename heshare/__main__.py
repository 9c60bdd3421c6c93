"""`python -m heshare` is `heshare`."""

from heshare.cli import main

if __name__ == "__main__":
    main()
