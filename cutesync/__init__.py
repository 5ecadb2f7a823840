"""cutesync: Hopper kernels in the CuTe Python DSL."""
