"""What Hopper fixes: sizes that the policies and the kernels of all families share."""

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
LANES = 32  # of a warp
WORD_BYTES, VECTOR_BYTES = 4, 16  # a register, and the widest load of a thread
SECTOR_BYTES, LINE_BYTES = 32, 128  # what memory delivers at once, and what the caches keep together
