"""Which releases of SGLang are served, by which of the two ways."""

import re

# From the first to the last release whose packages the tests were run against.
STORAGE = ((0, 5, 16), (0, 5, 23))
# The first that loads a linker of somebody else's.
LINKER = ((0, 5, 23), (0, 5, 23))
# From here on the names of pages tell LoRA adapters apart.
LORA_SINCE = (0, 5, 20)


def refusal(version, served, *, lora=False):
    """Why this release stays without infera-kvd, or `None`. `lora`: whether adapters may be used."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    release = tuple(int(part) for part in found.groups()) if found else None
    first, last = served
    if release is None or not first <= release <= last:
        only = _text(last) if first == last else f"{_text(first)} to {_text(last)}"
        return f"SGLang {version} is not served (only {only})"
    if lora and release < LORA_SINCE:
        return f"the names of pages in SGLang {version} do not tell LoRA adapters apart (since {_text(LORA_SINCE)} they do)"
    return None


def _text(release):
    return ".".join(str(part) for part in release)
