"""The pages of one pool in the daemon: looked for, loaded and saved in batches that fit a deadline."""

from infera_kvd.sglang.pages import page_hash, page_key, parents

# One call to the daemon: its deadline is for so much at most.
PART_PAGES_MAX = 128
PART_BYTES_MAX = 64 << 20


class PageStore:
    """What SGLang names by a page's hash. `make_lineage`: what describes a page for those who follow tier events."""

    def __init__(self, daemon, shard, keep, page_tokens, counters, make_lineage):
        self._daemon = daemon
        self._shard = self._first_shard = shard
        self._keep = keep
        self._page_tokens = page_tokens
        self._counters = counters
        self._make_lineage = make_lineage
        self._part = max(1, min(PART_PAGES_MAX, PART_BYTES_MAX // shard.block_bytes))

    @property
    def page_bytes(self):
        """Bytes of one page."""
        return self._shard.block_bytes

    def leading(self, names):
        """How many pages, from the first on, are there."""
        return self._daemon.locate([self._shard], [page_key(name) for name in names])

    def present(self, names):
        """For each page, whether it is there."""
        return self._daemon.present(self._shard, [page_key(name) for name in names])

    def fetch(self, names):
        """Views of the leading pages that are there."""
        return self._daemon.fetch(self._shard, [page_key(name) for name in names])

    def load(self, names, targets):
        """Fills a list of buffers for each page. Whether each is filled; behind a page that is not, nothing is tried."""
        filled = []
        for first in range(0, len(names), self._part):
            part = slice(first, first + self._part)
            failed = set(self._daemon.load(self._shard, [page_key(name) for name in names[part]], targets[part]))
            filled += [number not in failed for number in range(len(names[part]))]
            if failed:
                break
        return filled + [False] * (len(names) - len(filled))

    def save(self, names, sources, before=None):
        """Stores a list of buffers for each page that is not there yet. For each, whether it is there now.

        `names`: a chain. `before`: the name of the page before the first, "" at the start of a prompt, `None` if unknown.
        """
        return self.save_each(names, sources, parents(names, before))

    def save_each(self, names, sources, parent_names):
        """As `save`, with the name of the page before each."""
        stored = []
        for first in range(0, len(names), self._part):
            part = slice(first, first + self._part)
            stored += self._save_part(names[part], sources[part], parent_names[part])
        return stored

    def clear(self):
        """Forgets all pages of this namespace, and is private from then on. Whether the daemon did."""
        is_cleared = self._daemon.clear(self._shard)
        if is_cleared:
            self.forget()
        return is_cleared

    def forget(self):
        """From now on this engine finds nothing that was stored so far or that others store, and others nothing of its own.

        For when SGLang drops its cache: it may have got other weights, of which nobody else knows.
        """
        self._shard = self._first_shard.private()

    def _save_part(self, names, sources, parent_names):
        stored = self.present(names)
        self._counters.add("save_present_blocks", sum(stored))
        missing = [number for number, is_there in enumerate(stored) if not is_there]
        if missing:
            saved = self._daemon.save(
                self._shard,
                [page_key(names[number]) for number in missing],
                [sources[number] for number in missing],
                self._keep,
                [self._lineage(names[number], parent_names[number]) for number in missing],
            )
            for number, is_stored in zip(missing, saved, strict=True):
                stored[number] = is_stored
        return stored

    def _lineage(self, name, parent_name):
        digest = page_hash(name)
        if digest is None or parent_name is None:
            return None
        return self._make_lineage([digest], parent=page_hash(parent_name) or None, tokens_per_block=self._page_tokens)
