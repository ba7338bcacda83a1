"""Ranges for torch's profiler around calls on tensors; under `torch.autograd.profiler.emit_nvtx` they are
ranges of NVTX, too. Calls of the runtime beneath are ranges of NVTX by themselves, in the domain `rushmem`;
torch's profiler sees nothing of those."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["torch_of", "range_of"]


def torch_of(array: Any) -> Any:
    """torch, where an array is one of its tensors."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


_NOTHING: AbstractContextManager[Any] = nullcontext()


def range_of(torch: Any, name: str) -> AbstractContextManager[Any]:
    """`rushmem::name` as long as it is entered, where a profiler runs: a range costs ten times the call.
    Nothing where `torch` is None."""
    if torch is None or not getattr(torch.autograd.profiler, "_is_profiler_enabled", True):
        return _NOTHING
    made: AbstractContextManager[Any] = torch.profiler.record_function(f"rushmem::{name}")
    return made
