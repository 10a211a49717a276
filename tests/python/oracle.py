"""A naive store: the rules of the protocol's page, written down as plainly as they are said."""

import itertools

CLASSES = {"none": 0, "ephemeral": 10, "short": 50, "long": 100}


class Oracle:
    """Rows in a dict; every choice by looking at all of them."""

    def __init__(self, budget):
        self.budget = budget
        self.rows = {}
        self.clock = itertools.count()
        self.totals = dict.fromkeys(("gets", "sets", "hits", "misses", "evictions"), 0)

    def set(self, place, value, retention, lives=True):
        """Accepted or not, and why."""
        self.totals["sets"] += 1
        if not lives:
            return True, None
        old = self.rows.get(place)
        if old and CLASSES[old["retention"]] > CLASSES[retention]:
            return False, "retention_downgrade_not_allowed"
        if len(value) > self.budget:
            return False, "value_larger_than_store"
        victims = self._victims(place, len(value), retention)
        if victims is None:
            return False, "would_displace_higher_priority"
        for victim in victims:
            del self.rows[victim]
            self.totals["evictions"] += 1
        self.rows[place] = {"value": value, "retention": retention, "used": next(self.clock)}
        return True, None

    def _victims(self, place, length, retention):
        held = {name: row for name, row in self.rows.items() if name != place}
        excess = sum(len(row["value"]) for row in held.values()) + length - self.budget
        order = sorted(held, key=lambda name: (CLASSES[held[name]["retention"]], held[name]["used"]))
        victims = []
        for name in order:
            if excess <= 0:
                break
            if CLASSES[held[name]["retention"]] > CLASSES[retention]:
                break
            victims.append(name)
            excess -= len(held[name]["value"])
        return victims if excess <= 0 else None

    def get(self, place):
        """Value and retention, or None."""
        self.totals["gets"] += 1
        row = self.rows.get(place)
        self.totals["hits" if row else "misses"] += 1
        if row is None:
            return None
        row["used"] = next(self.clock)
        return row["value"], row["retention"]

    def batch_get(self, places):
        """As single calls, but the first key ends up the youngest: the head of a prefix outlives its tail."""
        found = [self.get(place) for place in places]
        for place in reversed(places):
            if place in self.rows:
                self.rows[place]["used"] = next(self.clock)
        return found

    def clear(self, model, compat_key):
        """How many rows went."""
        everything = (model, compat_key) == ("", "")
        gone = [place for place in self.rows if everything or place[:2] == (model, compat_key)]
        for place in gone:
            del self.rows[place]
        return len(gone)

    def stats(self):
        """The nine figures."""
        return {
            "entries": len(self.rows),
            "host_bytes": sum(len(row["value"]) for row in self.rows.values()),
            "spillover_bytes": 0,
            "long_bytes": 0,
            **{f"{name}_total": self.totals[name] for name in ("gets", "sets", "hits", "misses")},
            "evictions_total": self.totals["evictions"],
        }
