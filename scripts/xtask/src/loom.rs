//! `cargo xtask loom`: the models of `kvd-shm` and `kvd-disk`, each with its negative control. Own target
//! folder, since the `loom` cfg rebuilds everything below it.

use crate::{Context, command};

/// A crate and its model.
const MODELS: [(&str, &str); 2] = [("kvd-shm", "loom_header"), ("kvd-disk", "loom_sleep")];

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    for (package, model) in MODELS {
        let test = ["test", "-p", package, "--release", "--test", model];
        let mut test = command::cargo(&context.root, &test);
        test.args(["--target-dir", "target/loom"]).env("RUSTFLAGS", "--cfg loom");
        // Neither optimisation across crates nor debug lines change what a model explores.
        test.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        test.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        command::run(&mut test)?;
    }
    Ok(())
}
