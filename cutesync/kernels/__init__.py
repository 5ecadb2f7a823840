"""The families of kernels. Each is a folder; its ``__init__`` exports the public functions, and ``call`` defines
them."""
