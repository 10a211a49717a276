"""How much of what is stored is worth loading."""

# Both times are estimates, and a load that turns out slow delays an answer that could have been computed: it has to
# save this part of the computing.
MARGIN = 0.2


def worth_loading(ready, compute_seconds, ahead=0.0):
    """How many blocks, from the first on, to load so that the rest is computed soonest.

    `ready`: for each block that is stored, after how many seconds it and those before it can be loaded.
    `compute_seconds`: how long one block takes to compute, `None` if that is not known: everything is loaded then.
    `ahead`: seconds that loads which were begun before will still take.
    """
    if compute_seconds is None:
        return len(ready)
    best, least = 0, 0.0
    for count, seconds in enumerate(ready, 1):
        # What remains to be computed differs by what is loaded, which is all that has to be compared.
        cost = max(seconds, ahead) - count * compute_seconds * (1 - MARGIN)
        if cost <= least:
            best, least = count, cost
    return best
