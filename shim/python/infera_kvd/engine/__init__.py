"""What the connectors of all engines are made of: plain Python that imports no engine.

`keys.py` (names of blocks), `fingerprint.py` (identity of the weights), `options.py` (what people may set), `daemon.py`
(the client, for which trouble is a miss), `connections.py` (several clients as one), `saver.py` and `loader.py` (background threads), `counters.py`, `errors.py`.
"""
