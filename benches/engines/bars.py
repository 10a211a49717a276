"""Results of a measurement: lines as they come, and the bars again at the end."""

import statistics


class Bars:
    """`BAR <id> <value> <bound> ok|short`, like scripts/bench.sh."""

    def __init__(self):
        self._lines = []
        self.is_short = False

    def at_most(self, name, value, bound):
        """A bar that is met up to `bound`."""
        is_met = value <= bound
        self.is_short |= not is_met
        self._lines.append(f"BAR {name} {value:.3f} <={bound:g} {'ok' if is_met else 'short'}")

    def show(self):
        """The last lines of a run."""
        print(*self._lines, sep="\n", flush=True)


def spread(values):
    """A row of numbers in words."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"median {middle:.4g}, {low:.4g} to {high:.4g}, {len(values)} times"
