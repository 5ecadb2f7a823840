"""Faults planted in kernels of other projects: ``python -m tests.emulator.outside FOLDER`` makes the table.

The folder holds checkouts of them: ``cutlass``, ``quack``, ``flash-attention``; what is missing is left out. torch is
needed. Nothing of theirs is kept here, and the checkouts stay as they are: the kernels' PTX is edited in memory.
"""
