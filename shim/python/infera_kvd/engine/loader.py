"""The worker's loads: they fill blocks in the background while their requests wait beside the batch."""

from infera_kvd.engine.background import Background

# Loads that go on at once: what memory holds need not wait for what a disk holds.
AT_ONCE = 2


class Loader:
    """Loads in the order in which they come. Each ends and is reported, whatever happens.

    `fill(load, goes_on)` fills the blocks of a load and returns the ids of those that could not be filled; see `Background`.
    """

    def __init__(self, fill, threads=1, name="infera-kvd-load"):
        self._background = Background(fill, name, threads)
        self._failed_blocks = set()

    def add(self, load):
        """Takes a load."""
        self._background.add(load)

    def take_loaded(self):
        """Requests whose load has ended since the last call."""
        loaded = set()
        for load, failed in self._background.take_ended():
            loaded.add(load.request_id)
            self._failed_blocks |= {block_id for _, block_id in load.blocks} if failed is None else failed
        return loaded

    def take_failed_blocks(self):
        """Blocks that could not be filled, of every request that `take_loaded` has named since the last call."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def close(self):
        """Ends the threads: loads under way end after the part that they are at, the others fail."""
        self._background.close()
