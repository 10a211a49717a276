"""Lets SGLang's HiCache run where there is no GPU: for tests only. Put this folder on PYTHONPATH, set KVD_SGLANG_ON_CPU=1.

HiCache registers its host memory with CUDA and copies with operations of a GPU library. Here registering does nothing and
the copies of its "direct" way are made with torch, for the layouts `layer_first` and `page_first_direct`. HiCache also
leaves 10 GiB of the machine's memory alone, which a test machine may not have: here it is 256 MiB.
"""

import builtins
import importlib.util
import os
import sys

RESERVE_BYTES = 256 << 20


class Cudart:
    """The few calls of CUDA's run-time library that HiCache makes."""

    def cudaHostRegister(self, *arguments):
        """Nothing to do: 0 means success."""
        return 0

    def cudaHostUnregister(self, *arguments):
        """Nothing to do."""
        return 0


def without_pinning(make):
    """A maker of tensors for which `pin_memory` means nothing."""

    def made(*arguments, pin_memory=False, **named):
        return make(*arguments, **named)

    return made


def transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size):
    """Between layers on both sides: each (tokens, heads, dim)."""
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst_indices] = source[src_indices]


def transfer_kv_per_layer_direct_pf_lf(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    """One layer out of pages (pages, layers, tokens of a page, heads, dim)."""
    pages = src_indices[::page_size] // page_size
    for source, target in zip(src_ptrs, dst_ptrs, strict=True):
        target[dst_indices] = source[pages, layer_id].flatten(0, 1)


def transfer_kv_all_layer_direct_lf_pf(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    """All layers into pages; the sources are the layers of K, then those of V."""
    pages = dst_indices[::page_size] // page_size
    layers = len(src_ptrs) // len(dst_ptrs)
    for number, target in enumerate(dst_ptrs):
        for layer in range(layers):
            tokens = src_ptrs[number * layers + layer][src_indices]
            target[pages, layer] = tokens.view(-1, page_size, *tokens.shape[1:])


def prepare_torch():
    """What HiCache takes from torch and, by name, from nowhere: without a GPU it imports no such operations."""
    import torch

    torch.cuda.cudart = Cudart
    torch.zeros, torch.empty = without_pinning(torch.zeros), without_pinning(torch.empty)
    for operation in (transfer_kv_direct, transfer_kv_per_layer_direct_pf_lf, transfer_kv_all_layer_direct_lf_pf):
        setattr(builtins, operation.__name__, operation)


class Watcher:
    """Sees SGLang's modules being imported."""

    def find_spec(self, name, path=None, target=None):
        """Prepares torch before SGLang, and changes one constant of a module of it."""
        if name == "sglang":
            prepare_torch()
        if name != "sglang.srt.mem_cache.pool_host.base":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.HICACHE_HOST_MEMORY_RESERVE_BYTES = RESERVE_BYTES

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("KVD_SGLANG_ON_CPU") == "1":
    sys.meta_path.insert(0, Watcher())
