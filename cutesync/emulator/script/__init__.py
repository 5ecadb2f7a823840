"""Runs anybody's script on a machine without a GPU, and checks every kernel that it launches.

``command`` runs the script in a child process and reports; ``child`` is that process. There the emulator takes the
place of CUDA: ``dsl`` in the CuTe DSL, ``cuda_python`` in cuda.bindings, ``torch_tensors`` and ``torch_cuda`` in torch.
``session`` holds the options of the run and checks each launch, ``findings`` records what it finds.
"""
