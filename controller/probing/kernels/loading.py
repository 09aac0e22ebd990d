"""Prepares a kernel from its entry point: anything that does not load, does not fit or fails is one clear line.

Users' code may raise anything; it is caught here, and reported with the kernel and the step at which it happened.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from controller.probing.errors import ProbeKernelError, ProbeMemoryError
from controller.probing.kernels.base import Maker, Output, Sizes, Value
from controller.probing.values import Implementation, Library, Prepared
from dataplane.cgroups import limits_of
from dataplane.extras import EXTRA_OF

_LIBRARIES: Final = frozenset({"torch", "duckdb", "scipy", "numpy"})
"""Libraries that kernels may need."""
_PARTS: Final = ("run", "accuracy")


def load(name: str, implementation: Implementation) -> Callable[[Sizes, int], Prepared]:
    """Return the function that prepares a kernel; raise ProbeKernelError for an invalid entry point.

    `name` is the kernel's, for errors. The current folder is searched for modules too, as Python does for command
    files.
    """
    if implementation.library is Library.CONTAINER:
        from controller.probing.kernels.container import ContainerKernel  # noqa: PLC0415 - few need it

        return partial(ContainerKernel, name, implementation.entry)
    make: Callable[[Sizes, int], Prepared] = function_of(name, implementation.entry)
    _check_signature(name, implementation.entry, make)
    return make


def function_of(name: str, entry: str) -> Callable[..., Any]:
    """Return the function that an entry point `module:function` names; raise ProbeKernelError if there is none."""
    module_name, colon, attribute = entry.partition(":")
    if not (colon and module_name and attribute):
        raise ProbeKernelError(f"kernel {name}: invalid entry point {entry!r}: write module:function", at="entry")
    with _imports_from_here():
        module = _imported(name, module_name)
    candidate = getattr(module, attribute, None)
    if not callable(candidate):
        what = f"has no {attribute}" if candidate is None else f"has a {attribute} that is not callable"
        raise ProbeKernelError(f"kernel {name}: module {module_name} {what}", at="entry")
    function: Callable[..., Any] = candidate
    return function


def prepare(
    name: str, implementation: Implementation, sizes: Sizes, seed: int, *, memory_bytes: int | None = None
) -> Checked:
    """Return a kernel with its data; raise ProbeKernelError if that is impossible, before memory is taken.

    `memory_bytes` is what a unit has, None for what this process may take. Kernels that do not say how much they need
    are prepared without that check.
    """
    make = load(name, implementation)
    _check_memory(name, make, sizes, available_bytes() if memory_bytes is None else memory_bytes)
    with naming_errors(name, "make"):
        prepared = make(sizes, seed)
    if lacking := [part for part in _PARTS if not callable(getattr(prepared, part, None))]:
        kind = type(prepared).__name__
        raise ProbeKernelError(f"kernel {name}: {implementation.entry} returned {kind}, which has no {lacking[0]}")
    return Checked(name, prepared)


class Checked:
    """A prepared kernel whose failures are ProbeKernelErrors of one line, whatever it raises or returns."""

    def __init__(self, name: str, prepared: Prepared) -> None:
        self._name, self._prepared = name, prepared

    def run(self, inputs: tuple[Value, ...]) -> Output:
        """Do the kernel's work once."""
        try:
            return self._prepared.run(inputs)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything
            raise _failed(self._name, "run", error) from None

    def accuracy(self, output: Output) -> float:
        """Return the relative error of the last run's output: a non-negative number, or inf."""
        with naming_errors(self._name, "accuracy"):
            error = float(self._prepared.accuracy(output))
        if error < 0:
            raise ProbeKernelError(f"kernel {self._name}: its accuracy is {error}, and no error is negative")
        return math.inf if math.isnan(error) else error

    def figures(self) -> dict[str, float]:
        """Return other figures of the last run, by name; most kernels measure only their time."""
        figures = getattr(self._prepared, "figures", None)
        if figures is None:
            return {}
        with naming_errors(self._name, "figures"):
            return {str(name): float(value) for name, value in figures().items()}

    def close(self) -> None:
        """Remove what the runs have left; a user's kernel may lack it."""
        close = getattr(self._prepared, "close", None)
        if close is not None:
            with naming_errors(self._name, "close"):
                close()


@contextmanager
def naming_errors(name: str, step: str) -> Iterator[None]:
    """Turn whatever a kernel raises into a ProbeKernelError that names kernel and step."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        raise _failed(name, step, error) from None


def available_bytes() -> int | None:
    """Return how much memory this process may still take: the machine's, or what its control groups leave."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
    limit = limits_of().memory_bytes
    return min((value for value in (available, limit) if value is not None), default=None)


def _failed(name: str, step: str, error: Exception) -> ProbeKernelError:
    if isinstance(error, ProbeKernelError):
        is_named = name.partition(".")[0] in error.problem
        return error if is_named else ProbeKernelError(f"kernel {name}: {error.problem}", at=error.at)
    if isinstance(error, MemoryError):
        return ProbeMemoryError(f"kernel {name}: {step}: out of memory")
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return ProbeKernelError(f"kernel {name}: {step}: {text}")


def _imported(name: str, module: str) -> Any:  # noqa: ANN401 - any module
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing in _LIBRARIES:
            extra = EXTRA_OF.get(missing)
            hint = f": pip install 'millrace-net[{extra}]'" if extra else ""
            raise ProbeKernelError(f"kernel {name} needs {missing}, which is not installed{hint}") from None
        raise ProbeKernelError(f"kernel {name}: no module {missing}", at="entry") from None
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        raise _failed(name, f"import of {module}", error) from None


@contextmanager
def _imports_from_here() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _check_signature(name: str, entry: str, make: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return  # Unknown for compiled code: the call will tell.
    try:
        signature.bind({}, 0)
    except TypeError:
        raise ProbeKernelError(f"kernel {name}: {entry} takes {signature}, not (sizes, seed)", at="entry") from None


def _check_memory(name: str, make: object, sizes: Sizes, limit: int | None) -> None:
    if isinstance(make, Maker):
        for size in sorted(sizes.keys() - set(make.may_be_zero)):
            if sizes[size] < 1:
                raise ProbeKernelError(f"kernel {name}: {size} is {sizes[size]}, at least 1 needed", at=f"sizes.{size}")
    needs = getattr(make, "memory_bytes", None)
    if not callable(needs) or limit is None:
        return
    with naming_errors(name, "memory_bytes"):
        needed = int(needs(sizes))
    if needed > limit:
        shape = " ".join(f"{key}={value}" for key, value in sorted(sizes.items()))
        raise ProbeMemoryError(
            f"kernel {name} at {shape} needs {_in_mib(needed)} of memory, {_in_mib(limit)} available", at="sizes"
        )


def _in_mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MiB"
