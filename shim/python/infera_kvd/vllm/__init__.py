"""The vLLM connector: a KV-cache tier below the engine's own prefix cache, kept by infera-kvd.

    --kv-transfer-config '{"kv_connector": "InferaKvdConnector", "kv_connector_module_path": "infera_kvd.vllm",
                           "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}'

Reading order: `connector.py` (what vLLM calls), then what it decides with. The scheduler's half: `plan.py` (which blocks
are asked for, loaded and saved). The worker's half: `layout.py` (where a block's bytes are). What both share with the
connectors of other engines is in `infera_kvd.engine`.

Only `connector.py`, `environment.py` and `report.py` import vLLM; everything else is plain Python and tested as such.
"""

__all__ = ["InferaKvdConnector"]


def __getattr__(name):
    # Late, so that the plain modules can be used where there is no vLLM.
    if name == "InferaKvdConnector":
        from infera_kvd.vllm.connector import InferaKvdConnector

        return InferaKvdConnector
    raise AttributeError(f"module {__name__} has no attribute {name}")
