"""One life of one engine: starts vLLM in this process, answers what comes in line by line, ends with its input.

    python3 engine_life.py MODEL [--transfer JSON] [--settings JSON] [--max-tokens N]

Standard input has one JSON object a line, standard output one `LIFE {...}` line for each:

    {"do": "batch", "prompts": ["..."]}    for each: tokens, log-probabilities, cached tokens, reason of the end
    {"do": "forget"}                       empties vLLM's own prefix cache
    {"do": "metrics"}                      vLLM's prefix-cache counters

The scheduler and the worker are in this process (VLLM_ENABLE_V1_MULTIPROCESSING=0 is the caller's to set), which makes
a life a third as long as with three processes.
"""

import argparse
import json
import sys
import time

COUNTERS = ("vllm:prefix_cache", "vllm:external_prefix_cache")
BLOCK_TOKENS = 32
KV_BYTES = 64 << 20
FORGET_TRIES = 100


def say(**answer):
    """One line for whoever started us."""
    print("LIFE " + json.dumps(answer), flush=True)


def engine(options):
    """The engine, with everything fixed that could change its output."""
    from vllm import LLM

    settings = {
        "dtype": "bfloat16",
        "seed": 0,
        "enforce_eager": True,
        "max_model_len": 2048,
        "block_size": BLOCK_TOKENS,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 2048,
        "kv_cache_memory_bytes": KV_BYTES,
        "enable_prefix_caching": True,
        # So that others can name a block too.
        "prefix_caching_hash_algo": "sha256_cbor",
        "disable_log_stats": False,
    }
    if options.transfer:
        settings["kv_transfer_config"] = json.loads(options.transfer)
    return LLM(model=options.model, **settings | json.loads(options.settings))


def answer_of(output):
    """What one request brought."""
    text = output.outputs[0]
    return {
        "prompt_tokens": len(output.prompt_token_ids),
        "cached": output.num_cached_tokens,
        "finish": text.finish_reason,
        "tokens": list(text.token_ids),
        "logprobs": [
            ranks[token].logprob for token, ranks in zip(text.token_ids, text.logprobs, strict=True)
        ],
    }


def generate(llm, prompts, max_tokens, parameters):
    """The answers to `prompts`, asked together."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=max_tokens,
        ignore_eos=True,
        logprobs=1,
        extra_args={"kv_transfer_params": parameters} if parameters else None,
    )
    begun = time.monotonic()
    answers = [answer_of(output) for output in llm.generate(prompts, sampling, use_tqdm=False)]
    return {"answers": answers, "seconds": round(time.monotonic() - begun, 4)}


def forget(llm):
    """Empties the prefix cache; whether that went. Blocks that are being saved are let go of in a later step."""
    for _ in range(FORGET_TRIES):
        if llm.reset_prefix_cache():
            return True
        generate(llm, ["x"], 1, None)
    return False


def main():
    """Reads commands until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--transfer", help="kv_transfer_config as JSON; without it there is no connector")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--settings", default="{}", help="more arguments of vLLM's LLM as JSON")
    options = parser.parse_args()
    llm = engine(options)
    say(ready=True)
    for line in sys.stdin:
        command = json.loads(line)
        match command["do"]:
            case "batch":
                max_tokens = command.get("tokens") or options.max_tokens
                say(**generate(llm, command["prompts"], max_tokens, command.get("parameters")))
            case "forget":
                say(forgotten=forget(llm))
            case "metrics":
                say(**{
                    metric.name: metric.value
                    for metric in llm.get_metrics()
                    if metric.name.startswith(COUNTERS)
                })
    say(ended=True)


if __name__ == "__main__":
    main()
