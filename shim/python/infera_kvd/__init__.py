"""Blocks of the KV-cache daemon of this host as Python buffers.

`Client` asks the daemon; a `View` is a block that can be read in place, a `Ticket` room for a block that can be written in
place. Start with `help(infera_kvd.Client)`.
"""

from infera_kvd._native import (
    Attached,
    Client,
    KvdError,
    Lineage,
    Located,
    Miss,
    Refusal,
    Ticket,
    View,
    __version__,
    router_hashes,
)

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
