"""``python -m cutesync demo | check | trace | info | warm | cache``."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
