//! The fuzz targets' checks on the stable toolchain: every file of the seed corpus, and seeded
//! mutations of it.

#[path = "../../../tests/fuzz/src/device.rs"]
#[expect(unreachable_pub, clippy::expect_used, reason = "a crate of its own for the fuzz targets")]
mod checks;
#[path = "../../../tests/fuzz/seeded.rs"]
mod seeded;

// So many mutations of each file. Raise it to search longer.
#[test]
fn journals_and_snapshots() {
    seeded::run("tablespace", 60, checks::tablespace);
}

#[test]
fn superblocks() {
    seeded::run("superblock", 400, checks::superblock);
}
