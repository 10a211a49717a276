//! `cargo xtask loom`: the models of `kvd-shm`, each with its negative control. Own target folder, since the
//! `loom` cfg rebuilds everything below it.

use crate::{Context, command};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let models = ["test", "-p", "kvd-shm", "--release", "--test", "loom_header"];
    let mut models = command::cargo(&context.root, &models);
    models.args(["--target-dir", "target/loom"]).env("RUSTFLAGS", "--cfg loom");
    // Neither optimisation across crates nor debug lines change what a model explores.
    models.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    models.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command::run(&mut models)
}
