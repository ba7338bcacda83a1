"""Errors: an exception for each code of the C ABI (rushmem.h), with the runtime's text, which names the PE,
the peer, the path and what to do next."""

from __future__ import annotations


class Error(RuntimeError):
    """What rushmem raises. `code` is the C ABI's, `name` its name: `RUSHMEM_ERR_BAD_PE`."""

    code: int = 0
    name: str = "unknown error code"

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.name})"


class InvalidArgument(Error, ValueError):
    """An argument makes no sense."""

    code, name = -1, "RUSHMEM_ERR_INVALID_ARGUMENT"


class BadPe(Error, IndexError):
    """A PE number outside 0..n_pes."""

    code, name = -2, "RUSHMEM_ERR_BAD_PE"


class BadAddress(Error):
    """Memory that is not symmetric, or was freed."""

    code, name = -3, "RUSHMEM_ERR_BAD_ADDRESS"


class OutOfBounds(Error, IndexError):
    """A range that ends past its allocation."""

    code, name = -4, "RUSHMEM_ERR_OUT_OF_BOUNDS"


class Mismatch(Error):
    """PEs disagree in a collective call."""

    code, name = -5, "RUSHMEM_ERR_MISMATCH"


class HeapExhausted(Error, MemoryError):
    """The symmetric heap cannot grow far enough."""

    code, name = -6, "RUSHMEM_ERR_HEAP_EXHAUSTED"


class Timeout(Error, TimeoutError):
    """A time limit passed."""

    code, name = -7, "RUSHMEM_ERR_TIMEOUT"


class PeerDead(Error, ConnectionError):
    """A PE of the job died or left; the text names it and its reason."""

    code, name = -8, "RUSHMEM_ERR_PEER_DEAD"


class Bootstrap(Error, ConnectionError):
    """The PEs could not meet."""

    code, name = -9, "RUSHMEM_ERR_BOOTSTRAP"


class Environment(Error):
    """An environment variable is missing, malformed or contradicts another."""

    code, name = -10, "RUSHMEM_ERR_ENVIRONMENT"


class Version(Error):
    """Library versions do not fit."""

    code, name = -11, "RUSHMEM_ERR_VERSION"


class Compile(Error):
    """A kernel's source did not compile; the text holds the compiler's messages."""

    code, name = -12, "RUSHMEM_ERR_COMPILE"


class Launch(Error):
    """A launch was refused, or a kernel failed."""

    code, name = -13, "RUSHMEM_ERR_LAUNCH"


class Unsupported(Error, NotImplementedError):
    """Not possible on this device, transport or build."""

    code, name = -14, "RUSHMEM_ERR_UNSUPPORTED"


class Busy(Error):
    """Work is still in flight, or another thread is inside a call."""

    code, name = -15, "RUSHMEM_ERR_BUSY"


class Io(Error, OSError):
    """The operating system refused."""

    code, name = -16, "RUSHMEM_ERR_IO"


class BadHandle(Error):
    """Something that has ended: a world, a team, a stream, a module."""

    code, name = -17, "RUSHMEM_ERR_BAD_HANDLE"


class Internal(Error):
    """A defect in rushmem; please report it."""

    code, name = -18, "RUSHMEM_ERR_INTERNAL"


class Forked(Error):
    """The call was made in a child of fork."""

    code, name = -19, "RUSHMEM_ERR_FORKED"


class Interrupted(Error, InterruptedError):
    """The wait was ended on this side: another thread has aborted the world."""

    code, name = -20, "RUSHMEM_ERR_INTERRUPTED"


class LibraryNotFound(Error, ImportError):
    """librushmem_host.so cannot be loaded; the text lists every path tried."""

    code, name = -1000, "librushmem_host.so not loaded"


BY_CODE: dict[int, type[Error]] = {
    error.code: error
    for error in (
        InvalidArgument, BadPe, BadAddress, OutOfBounds, Mismatch, HeapExhausted, Timeout, PeerDead, Bootstrap, Environment,
        Version, Compile, Launch, Unsupported, Busy, Io, BadHandle, Internal, Forked, Interrupted, LibraryNotFound,
    )
}
