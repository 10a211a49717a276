//! A device made by the store's own code, then damaged in every way that matters here.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kvd_client::Retention;
use kvd_shm::checksum::of_block;
use kvd_store::tablespace::geometry::{
    DIRECTORY, SUPERBLOCK_NAME, container_name, journal_name, snapshot_name,
};
use kvd_store::tablespace::image::{Image, ImageEntry, ImageFile};
use kvd_store::tablespace::{Settings, Superblock, WallTime};

use super::*;

const CONTAINER_BYTES: u64 = 1 << 20;
const CONTAINERS: u32 = 3;
const SPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };

/// Lengths of the blocks of a device, by their number: some cross the end of a container.
fn len_of(number: u8) -> u32 {
    u32::from(number) * 9000
}

fn payload(number: u8) -> Vec<u8> {
    (0..=255).cycle().skip(number.into()).take(len_of(number) as usize).collect()
}

const BLOCKS: u8 = 20;

/// Makes a device with blocks 0 to 19 in `parent`.
pub(crate) fn make_device(parent: &Path) {
    let folder = parent.join(DIRECTORY);
    fs::create_dir(&folder).expect("made");
    let superblock = Superblock {
        set_id: [1; 16],
        device_id: [2; 16],
        container_bytes: CONTAINER_BYTES,
        journal_bytes: 1 << 20,
        created_ms: 7,
    };
    fs::write(folder.join(SUPERBLOCK_NAME), superblock.encode()).expect("written");
    let space_bytes = CONTAINER_BYTES * u64::from(CONTAINERS);
    for number in 0..CONTAINERS {
        let container = fs::File::create(folder.join(container_name(number))).expect("made");
        container.set_len(CONTAINER_BYTES).expect("long enough");
    }
    let mut image = Image::new(Settings {
        tag: superblock.tag(),
        journal_bytes: superblock.journal_bytes,
        snapshot_bytes_max: 1 << 20,
        space_bytes,
        expected_bytes: space_bytes,
        hash_seed: 3,
        now: WallTime(0),
    });
    let mut write = |piece: kvd_store::tablespace::image::ImagePiece| {
        let name = match piece.file {
            ImageFile::Journal(half) => journal_name(half),
            ImageFile::Snapshot(half) => snapshot_name(half),
        };
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(folder.join(name));
        file.expect("opened").write_all_at(&piece.bytes, piece.offset).expect("written");
    };
    for number in 0..BLOCKS {
        let key = [number];
        let entry = ImageEntry {
            namespace: SPACE,
            key: &key,
            len_bytes: len_of(number),
            checksum: of_block(&payload(number), &key),
            class: Retention::Long,
        };
        assert!(image.add(entry, &mut write));
    }
    image.finish(&mut write);
    // Where the blocks came to lie only recovery tells.
    let device = Folder::open(parent).expect("a device");
    let (tablespace, report) = recover(&device, CONTAINERS as usize).expect("recovered");
    assert_eq!(report.entries, u64::from(BLOCKS));
    for block in tablespace.blocks() {
        poke(parent, block.start, &payload(block.key[0]));
    }
}

/// Writes to the device's linear space.
fn poke(parent: &Path, start: u64, bytes: &[u8]) {
    let (mut at, mut rest) = (start, bytes);
    while !rest.is_empty() {
        let number = u32::try_from(at / CONTAINER_BYTES).expect("small");
        let path = parent.join(DIRECTORY).join(container_name(number));
        let left = usize::try_from(CONTAINER_BYTES - at % CONTAINER_BYTES).expect("small");
        let (here, later) = rest.split_at(left.min(rest.len()));
        let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
        file.write_all_at(here, at % CONTAINER_BYTES).expect("written");
        (at, rest) = (at + here.len() as u64, later);
    }
}

fn place_of(parent: &Path, number: u8) -> u64 {
    let device = Folder::open(parent).expect("a device");
    let (tablespace, _) = recover(&device, CONTAINERS as usize).expect("recovered");
    let place = tablespace.blocks().find(|block| block.key == [number]).map(|block| block.start);
    place.expect("still known")
}

fn verify(parent: &Path, drop_bad: bool) -> Result<ExitCode> {
    run(&Verify { dir: parent.to_path_buf(), drop_bad, json: true })
}

/// The exit code as `main` returns it.
fn succeeds(parent: &Path, drop_bad: bool) -> bool {
    verify(parent, drop_bad).expect("verified") == ExitCode::SUCCESS
}

fn found(parent: &Path) -> Found {
    let folder = Folder::open(parent).expect("a device");
    let containers = folder.containers().expect("opened");
    let (tablespace, _) = recover(&folder, containers.len()).expect("recovered");
    let engine = Engine::Blocking;
    let config = Config { engine, depth: 3, arena: None, name: "test".into() };
    let mut disk = kvd_disk::open(config).expect("a pool").disk;
    for (number, container) in (0..).zip(containers) {
        container.into_iter().for_each(|container| disk.attach(FileId(number), container));
    }
    check(disk.as_mut(), CONTAINER_BYTES, &tablespace).expect("checked")
}

fn bad_keys(parent: &Path) -> Vec<String> {
    found(parent).bad.into_iter().map(|bad| bad.key).collect()
}

/// Everything on the device, by file.
fn bytes_of(parent: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(parent.join(DIRECTORY)).expect("a folder").map(|entry| {
        let entry = entry.expect("a file");
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("read"))
    });
    files.filter(|(name, _)| name != "lock").collect()
}

#[test]
fn a_whole_device_is_whole_and_stays_as_it_is() {
    let parent = tempfile::tempdir().expect("a folder");
    make_device(parent.path());
    let before = bytes_of(parent.path());
    assert!(succeeds(parent.path(), false));
    assert!(succeeds(parent.path(), true), "nothing to drop is no failure");
    let found = found(parent.path());
    assert_eq!((found.blocks, found.bad.len()), (20, 0));
    assert_eq!(found.bytes, (0..BLOCKS).map(|number| u64::from(len_of(number))).sum::<u64>());
    assert!(bytes_of(parent.path()) == before, "written to");
}

#[test]
fn one_wrong_byte_is_found_and_dropped_only_if_asked() {
    let parent = tempfile::tempdir().expect("a folder");
    make_device(parent.path());
    let place = place_of(parent.path(), 7);
    poke(parent.path(), place + 60_000, &[0x5a ^ payload(7)[60_000]]);
    let before = bytes_of(parent.path());
    assert!(!succeeds(parent.path(), false));
    assert!(bytes_of(parent.path()) == before, "nothing is written unless asked");
    assert_eq!(bad_keys(parent.path()), ["07"]);
    assert!(succeeds(parent.path(), true), "none is left");
    let after = found(parent.path());
    assert_eq!((after.blocks, after.bad.len()), (19, 0), "gone for good");
    assert!(succeeds(parent.path(), false));
}

#[test]
fn a_missing_container_costs_its_blocks_and_a_short_one_its_tail() {
    let parent = tempfile::tempdir().expect("a folder");
    make_device(parent.path());
    let in_first = |number| place_of(parent.path(), number) + u64::from(len_of(number));
    let kept: Vec<u8> = (1..BLOCKS).filter(|number| in_first(*number) <= CONTAINER_BYTES).collect();
    fs::remove_file(parent.path().join(DIRECTORY).join(container_name(1))).expect("removed");
    let bad = bad_keys(parent.path());
    assert!(!bad.is_empty() && !kept.is_empty());
    assert!(kept.iter().all(|number| !bad.contains(&to_hex(&[*number]))), "{bad:?} {kept:?}");
    assert!(!succeeds(parent.path(), false));
}

#[test]
fn a_device_in_use_is_refused() {
    let parent = tempfile::tempdir().expect("a folder");
    make_device(parent.path());
    let held = Folder::open(parent.path()).expect("a device").lock().expect("free");
    let refused = verify(parent.path(), true).expect_err("held").to_string();
    assert!(refused.contains("in use"), "{refused}");
    drop(held);
    assert!(succeeds(parent.path(), false));
}
