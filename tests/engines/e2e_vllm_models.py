"""Other models, number formats and layouts, and what is not served. Run by scripts/e2e-engines.sh.

    python3 e2e_vllm_models.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

Everything is called by the same name on one daemon. Nobody may find what another has stored, and each engine answers
as it does without a connector.
"""

import re
import subprocess
import sys

import torch

from blocks import loadable
from lives import HERE
from report import program
from runs import NAMESPACE, Run

DOCUMENT = "Blocks of one model are worth nothing to another. " * 10
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?"]
REFUSED = re.compile(r"infera-kvd is not used: (.*)")


def make_model(run, folder, *words):
    """Another tiny model."""
    path = run.folder / folder / "model"
    subprocess.run([sys.executable, HERE / "make_tiny_model.py", path, *words], check=True, capture_output=True)
    return str(path)


def base(run, name, model, settings):
    """What the engine says without us."""
    life = run.life(f"{name}-base", transfer=None, model=model, settings=settings).wait_until_ready()
    run.baseline = {prompt: life.generate(prompt) for prompt in PROMPTS}
    life.end()


def asked(run, name, model, settings):
    """An engine with the connector is asked everything: cached tokens of each prompt, and its log."""
    life = run.life(name, model=model, settings=settings).wait_until_ready()
    cached = []
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"{name} {number}", answer, prompt)
        cached.append(answer["cached"])
    return cached, life.end()


def served(run, name, model, *, block_tokens=32, twice=True, **settings):
    """Stores under a namespace of its own and, if `twice`, finds it again after the engine's restart."""
    settings["block_size"] = block_tokens
    base(run, name, model, settings)
    before = run.stats()
    cached, log = asked(run, f"{name}-cold", model, settings)
    run.report.check(f"{name}: finds nothing", cached, [run.baseline[prompt]["cached"] for prompt in PROMPTS])
    after = run.stats()
    run.report.check(f"{name}: asks the daemon for nothing", after["gets_total"], before["gets_total"])
    run.report.check(f"{name}: a namespace of its own", after["namespaces"], before["namespaces"] + 1)
    run.report.check(f"{name}: said in one line", [found[0] for found in NAMESPACE.findall(log)], ["model"])
    if twice:
        cached, _ = asked(run, f"{name}-warm", model, settings)
        run.report.check(f"{name}: finds its own", cached, [loadable(prompt, block_tokens) for prompt in PROMPTS])


def refused(run, name, model, reason, **settings):
    """Runs as without a connector; the reason is one line."""
    base(run, name, model, settings)
    before = run.stats()
    cached, log = asked(run, name, model, settings)
    run.report.check(f"{name}: as without us", cached, [run.baseline[prompt]["cached"] for prompt in PROMPTS])
    reasons = REFUSED.findall(log)
    run.report.check(f"{name}: one line with the reason", [bool(re.search(reason, found)) for found in reasons], [True])
    print(f"     {name}: {'; '.join(reasons)}")
    run.report.check(f"{name}: nothing is stored", run.stats()["sets_total"], before["sets_total"])


def everything(options, cleanup, report):
    """In order, on one daemon."""
    run = Run(options, cleanup, report)
    served(run, "bf16", options.model)
    served(run, "fp16", options.model, dtype="float16")
    served(run, "other-weights", make_model(run, "other", "--seed", "99"), twice=False)
    served(run, "other-block-size", options.model, block_tokens=64, twice=False)
    refused(run, "windows", make_model(run, "gemma", "--kind", "gemma"), r"layer \S+ (keeps|is in)", load_format="dummy")
    refused(run, "no-prefix-caching", options.model, "prefix caching is off", enable_prefix_caching=False)
    latent = make_model(run, "deepseek", "--kind", "deepseek")
    if torch.cpu._is_amx_tile_supported():
        served(run, "latent", latent)
    else:
        # vLLM's other kernels for latents cannot go on from a prefix.
        refused(run, "latent", latent, "prefix caching is off", block_size=16)
    report.check("the daemon ends cleanly", run.daemon.stop(), 0)


if __name__ == "__main__":
    program(__doc__, everything)
