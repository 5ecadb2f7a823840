"""What the policies of all families share."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Policy:
    """Compile-time choices of a kernel. ``kernel`` is the name of its class, in ``module``, relative to the family."""

    module: ClassVar[str]
    kernel: ClassVar[str]

    def make(self, *given: Any) -> Any:
        """Return the kernel's host object, made of ``given`` and this policy. Imports the DSL."""
        home = importlib.import_module(self.module, type(self).__module__.rpartition(".")[0])
        return getattr(home, self.kernel)(*given, self)
