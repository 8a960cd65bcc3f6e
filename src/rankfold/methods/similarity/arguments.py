"""Arguments of a kernel function: types, defaults and limits."""

from __future__ import annotations

from typing import Annotated

from rankfold.methods.argument import Argument

KERNELS = ("rbf", "laplacian", "polynomial", "sigmoid", "cosine", "linear")
ALIASES = {"poly": "polynomial", "gaussian": "rbf"}

Kernel = Annotated[
    str,
    Argument(
        "rbf, laplacian, polynomial, sigmoid, cosine or linear: of two rows",
        choices=(*KERNELS, *ALIASES),
        python_type="str | Callable[..., float]",
    ),
]
Gamma = Annotated[
    float | None,
    Argument("what differences or products are multiplied with; 1 / columns by default", least=0),
]
Degree = Annotated[float, Argument("power of polynomial", least=0)]
Coef0 = Annotated[float, Argument("added to products by polynomial and sigmoid")]
Seed = Annotated[int, Argument("key of the random numbers", least=0, below=2**64)]

DEGREE = 3.0
COEF0 = 1.0
