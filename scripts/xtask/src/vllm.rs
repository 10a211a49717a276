//! `cargo xtask vllm`: real vLLM processes on the real daemon, by `scripts/e2e-vllm.sh`, which installs the engine once.

use crate::{Context, command};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let script = context.root.join("scripts/e2e-vllm.sh");
    command::run(&mut command::program_in(&context.root, script, &[]))
}
