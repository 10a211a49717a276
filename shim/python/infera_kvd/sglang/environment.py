"""What this engine is: everything about SGLang, its model and its machine that decides what a page's bytes mean."""

import json
import os
import pathlib

import sglang.version
import torch
from sglang.srt import runtime_context

from infera_kvd.engine import fingerprint, keys
from infera_kvd.engine.errors import Refused
from infera_kvd.sglang.served import refusal

# Of SGLang's arguments those that change what is computed or how it is stored, as far as this release has them.
ARGUMENTS = (
    "device",
    "dtype",
    "enable_fp32_lm_head",
    "json_model_override_args",
    "kv_cache_dtype",
    "modelopt_quant",
    "quantization",
    "quantization_param_path",
    "speculative_algorithm",
    "torchao_config",
)


def check(served):
    """Raises `Refused` if this release, or how it was started, is not served."""
    arguments = runtime_context.get_server_args()
    lora = bool(getattr(arguments, "enable_lora", False) or getattr(arguments, "lora_paths", None))
    reason = refusal(sglang.version.__version__, served, lora=lora)
    if reason is not None:
        raise Refused(reason)


def model_name(options):
    """The name that operators see."""
    return options.model or keys.model_name(runtime_context.get_server_args().model_path)


def identity(options):
    """What has to be equal between two engines, apart from the pools and the ranks. For JSON."""
    arguments = runtime_context.get_server_args()
    folder = _folder(arguments)
    return {
        "sglang": sglang.version.__version__,
        "configuration": _configuration(folder),
        "weights": options.weights_id or _weights(arguments, folder),
        "backends": _backends(arguments),
        "machine": _machine(arguments),
        # Which layers are on which stage, as far as it is not the same everywhere.
        "stages": os.environ.get("SGLANG_PP_LAYER_PARTITION"),
        **{name: _plain(getattr(arguments, name, None)) for name in ARGUMENTS},
    }


def first_page(pool):
    """The indices of a host pool's first page, as `get_page_buffer_meta` wants them."""
    return torch.arange(pool.page_size)


def bytes_of(tensor):
    """A tensor in host memory as a buffer of bytes in place; raises `ValueError` if its bytes are not one run."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"a tensor on {tensor.device} with stride {tensor.stride()}")
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())


def is_alone():
    """Whether there is no other rank that would have to agree."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1


def rank_in(group):
    """Rank and size in a group of ranks."""
    if group is None or is_alone():
        return 0, 1
    return torch.distributed.get_rank(group=group), torch.distributed.get_world_size(group=group)


def _plain(value):
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _folder(arguments):
    """Where the model is on this host; `None` if it is a single file, or not here."""
    path = arguments.model_path
    if os.path.isdir(path):
        return pathlib.Path(path)
    if os.path.exists(path):
        return None
    try:
        from huggingface_hub import snapshot_download

        return pathlib.Path(snapshot_download(path, revision=arguments.revision, local_files_only=True))
    except Exception:  # noqa: BLE001 - asked for again, with a reason, where it matters
        return None


def _configuration(folder):
    """The digest of the model's configuration; of a model elsewhere the name of its weights has to be enough."""
    path = folder and folder / "config.json"
    return fingerprint.of_configuration(json.loads(path.read_bytes())) if path and path.exists() else None


def _weights(arguments, folder):
    path = arguments.model_path
    if str(arguments.load_format).endswith("dummy"):
        return f"dummy {arguments.random_seed}"
    try:
        if os.path.isfile(path):
            return fingerprint.of_file(path)
        if folder is None:
            raise FileNotFoundError(f"{path} is not on this host")
        return fingerprint.of_weights(folder)
    except Exception as error:
        raise Refused(f"the weights of {path} cannot be identified ({error}): set weights_id") from error


def _backends(arguments):
    """The attention backends, as resolved where this release tells."""
    try:
        kernel = runtime_context.get_exec().kernel
    except (AttributeError, ValueError):
        kernel = arguments
    names = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
    return [_plain(getattr(kernel, name, getattr(arguments, name, None))) for name in names]


def _machine(arguments):
    if arguments.device == "cpu":
        return ["cpu", torch.backends.cpu.get_cpu_capability()]
    return [str(arguments.device)]
