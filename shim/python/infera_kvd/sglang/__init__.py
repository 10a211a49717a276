"""Two ways to put infera-kvd below SGLang's prefix cache.

`storage.py`: a storage backend for HiCache, which moves pages between the device and host memory itself.

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
    '{"backend_name": "infera-kvd", "module_path": "infera_kvd.sglang", "class_name": "InferaKvdStorage", "interface_v1": 1}'

`linker.py`, experimental: straight between the device's pools and the daemon, without host memory of SGLang's own. A load
that fails ends its request with an error there; HiCache computes instead.

    --enable-unified-cache-external-linker --unified-cache-external-linker-backend dynamic
    --unified-cache-external-linker-config '{"linker": "InferaKvdLinker", "linker_module_path": "infera_kvd.sglang"}'

Reading order: `pages.py` (names and places of pages), `store.py` (the pages of one pool), then what decides for either way,
`hicache.py` and `linking.py`. Only `storage.py`, `linker.py` and `environment.py` import SGLang; everything else is plain
Python and tested as such.
"""

__all__ = ["InferaKvdLinker", "InferaKvdStorage"]


def __getattr__(name):
    # Late: the plain modules can be used where there is no SGLang, and older releases have no linker.
    if name == "InferaKvdStorage":
        from infera_kvd.sglang.storage import InferaKvdStorage

        return InferaKvdStorage
    if name == "InferaKvdLinker":
        from infera_kvd.sglang.linker import InferaKvdLinker

        return InferaKvdLinker
    raise AttributeError(f"module {__name__} has no attribute {name}")
