"""``python -m bestarm.cli``."""

from bestarm.cli.app import main

if __name__ == "__main__":
    main()
