"""Which modules make up a connector, and which class of the engine is behind the names that they use.

A name is that of a parameter or an attribute, `owner.attribute` where the attribute's name alone is too common, or
`module:name` where a module means something else by it. A list or a dictionary counts as what it holds.
"""

# Name: (engine, modules of `infera_kvd.<engine>`). Each is served or refused on its own.
COMPONENTS = {
    "vllm connector": ("vllm", ("[!t]*",)),
    "vllm tier": ("vllm", ("environment", "tier*")),
    "sglang storage": ("sglang", ("environment", "hicache", "pages", "served", "storage", "store")),
    "sglang linker": ("sglang", ("environment", "linker", "linking", "pages", "served", "store")),
}
VLLM = {
    "vllm_config": "vllm.config.VllmConfig",
    "cache_config": "vllm.config.CacheConfig",
    "compilation_config": "vllm.config.CompilationConfig",
    "kv_transfer_config": "vllm.config.KVTransferConfig",
    "load_config": "vllm.config.LoadConfig",
    "lora_config": "vllm.config.LoRAConfig",
    "model_config": "vllm.config.ModelConfig",
    "parallel_config": "vllm.config.ParallelConfig",
    "speculative_config": "vllm.config.SpeculativeConfig",
    "kv_cache_config": "vllm.v1.kv_cache_interface.KVCacheConfig",
    "kv_cache_groups": "vllm.v1.kv_cache_interface.KVCacheGroupSpec",
    "kv_cache_spec": "vllm.v1.kv_cache_interface.KVCacheSpec",
    "attn_backend": "vllm.v1.attention.backend.AttentionBackend",
    "get_pp_group": "vllm.distributed.parallel_state.GroupCoordinator",
    "get_tp_group": "vllm.distributed.parallel_state.GroupCoordinator",
    "current_platform": "vllm.platforms.interface.Platform",
    "request": "vllm.v1.request.Request",
    "output": "vllm.v1.core.sched.output.SchedulerOutput",
    "scheduled_new_reqs": "vllm.v1.core.sched.output.NewRequestData",
    "scheduled_cached_reqs": "vllm.v1.core.sched.output.CachedRequestData",
    # Of a tier.
    "offloading_spec.config": "vllm.v1.kv_offload.config.OffloadingConfig",
    "offloading": "vllm.v1.kv_offload.config.OffloadingConfig",
    "offloading.cache": "vllm.v1.kv_offload.config.OffloadingCacheConfig",
    "offloading.groups": "vllm.v1.kv_offload.config.OffloadingGroupConfig",
    "offloading.model": "vllm.v1.kv_offload.config.OffloadingModelConfig",
    "offloading.parallel": "vllm.v1.kv_offload.config.OffloadingParallelConfig",
    "job_metadata": "vllm.v1.kv_offload.tiering.base.TransferJob",
    "req_context": "vllm.v1.kv_offload.base.ReqContext",
    "tier_rows:request": None,
}
SGLANG = {
    "storage_config": "sglang.srt.mem_cache.hicache_storage.HiCacheStorageConfig",
    "storage:config": "sglang.srt.mem_cache.hicache_storage.HiCacheStorageConfig",
    "transfers": "sglang.srt.mem_cache.hicache_storage.PoolTransfer",
    "self.transfers": None,
    "get_server_args": "sglang.srt.server_args.ServerArgs",
    "arguments": "sglang.srt.server_args.ServerArgs",
    "pages:pool": "sglang.srt.mem_cache.pool_host.mha.MHATokenToKVPoolHost",
    "environment:pool": "sglang.srt.mem_cache.pool_host.mha.MHATokenToKVPoolHost",
    "params": "sglang.srt.mem_cache.cache_init_params.CacheInitParams",
}
MEANINGS = {"vllm": VLLM, "sglang": SGLANG}
# Methods that an engine calls if a class has them, without declaring them itself.
CALLED_IF_THERE = {"sglang.srt.mem_cache.hicache_storage.HiCacheStorage": {"close"}}
# A class that is put together at run time, and the folder of the classes that it gets its fields from.
PUT_TOGETHER = {"sglang.srt.server_args.ServerArgs": "sglang/srt/arg_groups/fields"}
