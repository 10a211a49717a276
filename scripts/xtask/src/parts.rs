//! `cargo xtask parts`: the disk tier on real storage parts (loop devices, file systems, devices that fail on demand).
//! Extra words go to nextest. Needs root, loop devices and FUSE, and fails where they are missing, unless the
//! environment says that they are to be left out.

use crate::{Context, command, e2e};

/// With any value but nothing and `0`: leave these tests out, and say so.
const LEFT_OUT: &str = "KVD_WITHOUT_PARTS";

/// The test binaries, as nextest names them.
pub(crate) const FILTER: &str = "binary(/^parts_/)";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    if std::env::var(LEFT_OUT).is_ok_and(|value| !value.is_empty() && value != "0") {
        println!(
            "parts: left out, because {LEFT_OUT} is set; the disk tier is not tested on real devices"
        );
        return Ok(());
    }
    e2e::build(context)?;
    let tests = ["nextest", "run", "-p", e2e::CRATE, "--test-threads", "1", "-E", FILTER];
    command::run(command::cargo(&context.root, &tests).args(&context.extra))
}
