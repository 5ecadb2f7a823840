"""Host functions of kernels that need nothing but a launch."""

import inspect
from collections.abc import Callable

import cutlass.cute as cute
from cutlass import Int32

BLOCKS = inspect.Parameter("blocks", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Int32)


def host(block: int, grid: int | Callable | None = 1, **options):
    """The host function of a ``cute.kernel``: it takes the kernel's arguments and launches blocks of ``block`` threads.

    ``grid`` is the number of blocks, or a function of the arguments, which are given by name. With None the host
    function takes it as one more argument, the last. ``options`` are those of ``launch``."""

    def of(kernel):
        own = inspect.signature(kernel).parameters.values()
        names = (*(p.name for p in own), "blocks")

        @cute.jit(preprocess=False)
        def launch(*arguments):
            given = dict(zip(names, arguments))
            blocks = given.pop("blocks", None) if grid is None else grid(**given) if callable(grid) else grid
            kernel(*given.values()).launch(grid=(blocks, 1, 1), block=(block, 1, 1), **options)

        parameters = [*own, *([BLOCKS] if grid is None else [])]
        plain = launch.__wrapped__
        plain.__signature__ = inspect.Signature(parameters)
        plain.__annotations__ = {p.name: p.annotation for p in parameters}
        launch.__name__ = kernel.__name__
        return launch

    return of
