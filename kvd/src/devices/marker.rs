//! A note on a device that requests were served without it. What was replaced or cleared meanwhile could
//! not be said in its journal, so it begins anew at the next start that can use it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use super::claim::Claim;
use super::device::Device;

const NAME: &str = "failed";

/// Writes the note, as far as the device still takes it. It gets into the folder that was claimed,
/// wherever that is by now.
///
/// # Errors
/// As the system says.
pub fn write(claim: &Claim, reason: &str) -> io::Result<()> {
    let mut file = claim.open_or_make(NAME, false)?;
    writeln!(file, "{reason}")?;
    file.sync_all()?;
    claim.handle().sync_all()
}

/// As [`write()`]; a device that does not take it is left as it is, which the log says.
pub fn try_to_write(device: &Device, claim: &Claim, reason: &str) {
    if let Err(error) = write(claim, reason) {
        tracing::info!(path = %device.path.display(), "the device takes no note of that: {error}");
    }
}

/// Whether the note is there.
///
/// # Errors
/// As the system says.
pub fn is_there(folder: &Path) -> io::Result<bool> {
    fs::exists(folder.join(NAME))
}

/// Removes the note.
///
/// # Errors
/// As the system says.
pub fn remove(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(NAME))?;
    File::open(folder)?.sync_all()
}
