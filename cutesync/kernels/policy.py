"""What the policies of all families share."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Policy:
    """Compile-time choices of a kernel. ``kernel`` is the name of its class behind that of its module, which is
    relative to the family: ".rows:RowScan"."""

    kernel: ClassVar[str]
    cluster = 1  # blocks of a cluster; a field of policies that have several

    def __init_subclass__(cls, kernel: str) -> None:
        cls.kernel = kernel

    def make(self, *given: Any) -> Any:
        """Return the kernel's host object, made of ``given`` and this policy. Imports the DSL."""
        module, _, name = self.kernel.partition(":")
        home = importlib.import_module(module, type(self).__module__.rpartition(".")[0])
        return getattr(home, name)(*given, self)
