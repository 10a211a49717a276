"""Names and places of pages, and which lengths of a prefix can be restored. A page is SGLang's word for a block."""

import hashlib

from infera_kvd.engine.errors import Refused
from infera_kvd.engine.keys import block_key

# Which group a key is in if SGLang's name of the page is not one of its hashes.
OTHER_NAMES = 1
# What of a pool decides about the bytes of its pages, as far as the pool has it.
FACTS = (
    "layout",
    "page_size",
    "layer_num",
    "start_layer",
    "end_layer",
    "head_num",
    "head_dim",
    "v_head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "dtype",
    "storage_format_tag",
)


def page_hash(name):
    """SGLang's hash of a page as bytes, `None` if its name is something else."""
    try:
        return bytes.fromhex(name)
    except ValueError:
        return None


def page_key(name):
    """The key under which a page is stored."""
    digest = page_hash(name)
    if digest is None:
        return block_key(hashlib.sha256(name.encode()).digest(), OTHER_NAMES)
    return block_key(digest)


def parents(names, before=None):
    """For each page of a chain the name of the one before it; `before` for the first, `None` if that is not known."""
    return [before, *names[:-1]] if names else []


def runs_of(addresses, sizes, pages):
    """Runs of memory as a pool lists them, page by page: for each page a list of (address, bytes).

    Raises `ValueError` if they do not come out even: every page has equally many runs of equal sizes.
    """
    addresses, sizes = list(addresses), list(sizes)
    count, rest = divmod(len(addresses), pages) if pages else (0, len(addresses))
    if rest or len(sizes) != len(addresses) or (pages and not count):
        raise ValueError(f"{len(addresses)} addresses and {len(sizes)} sizes for {pages} pages")
    if any(sizes[first : first + count] != sizes[:count] for first in range(0, len(sizes), count or 1)):
        raise ValueError("pages of different sizes")
    runs = list(zip(addresses, sizes, strict=True))
    return [runs[first : first + count] for first in range(0, len(runs), count or 1)]


def check_pool(name, pool, first_page):
    """The sizes of the runs that one page of a pool has; raises `Refused` naming the pool if it cannot be served.

    `first_page`: the indices of the pool's first page, as it wants them.
    """
    if name.startswith("draft"):
        raise Refused(f"pool {name}: what a draft model stores depends on weights that are not looked at")
    try:
        addresses, sizes = pool.get_page_buffer_meta(first_page)
        (runs,) = runs_of(addresses, sizes, 1)
    except Exception as error:
        raise Refused(f"pool {name} ({type(pool).__name__}) does not say where its pages are: {error}") from error
    sizes = [int(size) for _, size in runs]
    if not sizes or min(sizes) <= 0:
        raise Refused(f"pool {name} ({type(pool).__name__}) keeps no bytes of its own")
    return sizes


def description(pool, sizes):
    """What has to be equal between two pools before one may use the other's pages. For JSON."""
    facts = {fact: _plain(getattr(pool, fact, None)) for fact in FACTS}
    return {"kind": type(pool).__name__, "runs": sizes, **facts}


def _plain(value):
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def page_starts(slots, page_tokens):
    """The first slot of each page; raises `ValueError` if a page is not one run of slots that begins on a page."""
    if len(slots) % page_tokens:
        raise ValueError(f"{len(slots)} slots are no whole pages of {page_tokens}")
    starts = slots[::page_tokens]
    for number, start in enumerate(starts):
        page = slots[number * page_tokens : (number + 1) * page_tokens]
        if start < 0 or start % page_tokens or page != list(range(start, start + page_tokens)):
            raise ValueError(f"slots from {start} on are not one page of {page_tokens}")
    return starts


def restorable_lengths(pages, found):
    """Which lengths of a prefix every pool can restore, and how far each pool reaches.

    `pages`: how many leading pages the main pool has. `found`: for each other pool (name, whether it has each of these
    pages, how many pages at the end of a prefix it needs or `None` for all of them).
    """
    lengths, reach = list(range(1, pages + 1)), {}
    for name, has, window in found:
        if window is None:
            leading = next((i for i in range(pages) if not has[i]), pages)
            possible = set(range(1, leading + 1))
        else:
            possible = {end for end in range(1, pages + 1) if all(has[max(0, end - window) : end])}
        reach[name] = max(possible, default=0)
        lengths = [length for length in lengths if length in possible]
    return lengths, reach
