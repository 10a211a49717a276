# Types of the native module. What each call means stands in its docstring: `help(infera_kvd.Client)`.
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias, final

from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = [
    "Attached",
    "Client",
    "KvdError",
    "Lineage",
    "Located",
    "Miss",
    "Refusal",
    "Ticket",
    "View",
    "__version__",
    "router_hashes",
]

__version__: str

_Retention: TypeAlias = Literal["none", "ephemeral", "short", "long"]
_Tier: TypeAlias = Literal["host", "disk", "remote"]

class KvdError(Exception):
    code: str

@final
class Client:
    def __new__(
        cls,
        socket: str | os.PathLike[str] | None = None,
        *,
        client_id: str | None = None,
        deadline: float = 1.0,
    ) -> Self: ...
    def attach(self) -> Attached: ...
    def locate(
        self, model: str, compat_key: str, keys: Iterable[bytes], *, prefix: bool = True
    ) -> list[Located]: ...
    def fetch(
        self,
        model: str,
        compat_key: str,
        keys: Iterable[bytes],
        *,
        prefix: bool = False,
        deadline: float | None = None,
    ) -> list[View | Miss]: ...
    def prefetch(
        self,
        model: str,
        compat_key: str,
        keys: Iterable[bytes],
        *,
        deadline: float | None = None,
    ) -> None: ...
    def get(self, model: str, compat_key: str, key: bytes) -> bytes | Miss: ...
    def load(
        self,
        model: str,
        compat_key: str,
        keys: Iterable[bytes],
        targets: Iterable[WriteableBuffer | Sequence[WriteableBuffer]],
        *,
        deadline: float | None = None,
    ) -> list[Miss | None]: ...
    def reserve(
        self,
        sizes: Sequence[int],
        *,
        retention: _Retention = "long",
        deadline: float | None = None,
    ) -> list[Ticket | Refusal]: ...
    def commit(
        self,
        model: str,
        compat_key: str,
        items: Sequence[tuple[Ticket, bytes]],
        *,
        lengths: Sequence[int] | None = None,
        retention: _Retention = "long",
        ttl: float | None = None,
        lineages: Sequence[Lineage | None] | None = None,
    ) -> list[Refusal | None]: ...
    def put(
        self,
        model: str,
        compat_key: str,
        key: bytes,
        value: ReadableBuffer,
        *,
        retention: _Retention = "long",
        ttl: float | None = None,
    ) -> Refusal | None: ...
    def save(
        self,
        model: str,
        compat_key: str,
        keys: Iterable[bytes],
        sources: Iterable[ReadableBuffer | Sequence[ReadableBuffer]],
        *,
        retention: _Retention = "long",
        ttl: float | None = None,
        lineages: Sequence[Lineage | None] | None = None,
        deadline: float | None = None,
    ) -> list[Refusal | None]: ...
    def clear(
        self,
        *,
        model: str | None = None,
        compat_key: str | None = None,
        everything: bool = False,
    ) -> int: ...
    def stats(self) -> dict[str, int]: ...
    @property
    def trouble(self) -> str | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

@final
class View:
    @property
    def nbytes(self) -> int: ...
    def copy_to(self, buffer: WriteableBuffer) -> None: ...
    def release(self) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __bool__(self) -> Literal[True]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

@final
class Ticket:
    @property
    def nbytes(self) -> int: ...
    def write(self, buffer: ReadableBuffer, offset: int = 0) -> None: ...
    def cancel(self) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __bool__(self) -> Literal[True]: ...

@final
class Miss:
    def __new__(cls, reason: str) -> Self: ...
    @property
    def reason(self) -> str: ...
    def __bool__(self) -> Literal[False]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Refusal:
    def __new__(cls, reason: str) -> Self: ...
    @property
    def reason(self) -> str: ...
    def __bool__(self) -> Literal[False]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Located:
    @property
    def present(self) -> bool: ...
    @property
    def tier(self) -> _Tier | None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def load_us(self) -> int: ...
    @property
    def miss(self) -> str | None: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class Attached:
    @property
    def epoch(self) -> int: ...
    @property
    def session(self) -> int: ...
    @property
    def server_id(self) -> str: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def limits(self) -> dict[str, int]: ...

def router_hashes(
    tokens: Sequence[int],
    tokens_per_block: int,
    *,
    parent: int | None = None,
    lora: str | None = None,
    salt: str | None = None,
) -> list[int]: ...
@final
class Lineage:
    def __new__(
        cls,
        engine_hashes: Sequence[bytes],
        router_hashes: Sequence[int] = ...,
        parent: bytes | None = None,
        tokens_per_block: int = 0,
        lora: str | None = None,
        salt: str | None = None,
    ) -> Self: ...
    @property
    def engine_hashes(self) -> list[bytes]: ...
    @property
    def router_hashes(self) -> list[int]: ...
    @property
    def parent(self) -> bytes | None: ...
    @property
    def tokens_per_block(self) -> int: ...
    @property
    def lora(self) -> str | None: ...
    @property
    def salt(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
