"""The families of kernels, a folder each: ``call`` has the public functions, ``policy`` chooses a kernel, then a file a kernel."""
