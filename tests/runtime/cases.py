"""A kernel as the cache stores it."""

KEY = ("reduce", "segments", 4, False)
FACTS = {"name": "cutesync_reduce_0", "block": (128, 1, 1), "smem": 2048, "params": (8, 8), "cluster": (1, 1, 1)}
CUBIN, PTX = bytes(range(256)) * 50, "// a kernel with a letter beyond ASCII: µ\n" * 20
