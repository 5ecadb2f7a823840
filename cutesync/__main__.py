"""``python -m cutesync demo | info | warm | cache``."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
