"""ATOM: a backend for its offload path, by the name `infera_kvd` in its registry of connectors.

    --kv-transfer-config '{"kv_connector": "infera_kvd", "kv_role": "offload"}'

ATOM finds connectors by name only, so this module has to be imported in each of its processes; importing it registers
the backend (see docs/atom.md). Never run with a real ATOM, which needs a GPU: written against its published interface
and tested with stand-ins. And of no use there yet: this release copies from and to host memory, so a cache on a device
is refused in one line and the engine computes.

Reading order: `scheduler.py` and `worker.py` (what ATOM calls), `plan.py` (what is asked for, loaded and saved),
`environment.py` (what the engine is), `layout.py` (where a block's bytes are). Only this file and those two import ATOM.
"""

BACKEND = "infera_kvd"


def register():
    """Adds the backend to ATOM's registry; again does no harm."""
    from atom.kv_transfer.disaggregation.factory import KVConnectorFactory

    KVConnectorFactory.register(
        BACKEND,
        worker_module="infera_kvd.atom.worker",
        worker_class="InferaKvdWorker",
        scheduler_module="infera_kvd.atom.scheduler",
        scheduler_class="InferaKvdScheduler",
    )


try:
    register()
except ModuleNotFoundError as error:
    # Without ATOM the plain modules can still be used.
    if error.name.partition(".")[0] != "atom":
        raise
