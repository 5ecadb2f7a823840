"""The DSL reads its target architecture when it is imported: set it before any test module does that."""

import os

os.environ["CUTE_DSL_ARCH"] = "sm_90a"
