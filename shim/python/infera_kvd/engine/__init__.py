"""What the connectors of all engines are made of: plain Python that imports no engine.

`keys.py` (names of blocks), `fingerprint.py` (identity of the weights), `options.py` (what people may set), `daemon.py`
(the clients, for which trouble is a miss), `saver.py` and `loader.py` (background threads; `background.py`: what loads of
all kinds run in), `counters.py`, `errors.py`.
"""
