//! The C header, computed from the source of the C ABI: `gen` writes it, `tidy` compares it.

use std::path::Path;

use anyhow::Context as _;

/// Where the header is checked in.
pub(crate) const HEADER: &str = "shim/include/infera_kvd.h";
const CONFIGURATION: &str = "shim/cbindgen.toml";

/// What the header is made of, in its order. Only these may hold exported functions.
const SOURCES: &[&str] = &[
    "shim/src/codes.rs",
    "shim/src/shapes.rs",
    "shim/src/abi/words.rs",
    "shim/src/abi/attach.rs",
    "shim/src/abi/read.rs",
    "shim/src/abi/write.rs",
    "shim/src/abi/single.rs",
    "shim/src/abi/store.rs",
];

/// The text of the header.
///
/// # Errors
/// A source or the configuration cannot be read.
pub(crate) fn text(root: &Path) -> anyhow::Result<String> {
    let configuration = cbindgen::Config::from_file(root.join(CONFIGURATION))
        .map_err(|trouble| anyhow::anyhow!("{CONFIGURATION}: {trouble}"))?;
    let builder = cbindgen::Builder::new().with_config(configuration);
    let builder = SOURCES.iter().fold(builder, |builder, path| builder.with_src(root.join(path)));
    let mut header = Vec::new();
    builder.generate().context("reading the C ABI")?.write(&mut header);
    String::from_utf8(header).context("the header's text")
}
