//! Bars: a start over a directory with millions of entries: when the socket is open, when everything is back, what that
//! takes in memory, and whether journals and snapshots stay within their bounds.
//!
//! The files are made by the code that a daemon makes them with, but without the blocks: containers are holes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kvd_client::{Client, Retention};
use kvd_store::Half;
use kvd_store::tablespace::geometry::{self, Plan};
use kvd_store::tablespace::image::{Image, ImageEntry, ImageFile, ImagePiece};
use kvd_store::tablespace::{Settings, Superblock, WallTime};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::tier::{self, Tier};
use crate::bar::Bar;
use crate::content::Content;
use crate::keys::{self, Key, NAMESPACE};
use crate::machine::Memory;
use crate::patience::{self, PATIENCE};
use crate::report::Report;
use crate::suite::Effort;

/// A directory: its name, its entries, its cap, and how soon all must be back.
struct Size {
    name: &'static str,
    entries: u64,
    cap_bytes: u64,
    back_s: f64,
}

const SIZES: [Size; 2] = [
    Size { name: "1m", entries: 1 << 20, cap_bytes: 16 << 30, back_s: 1.0 },
    Size { name: "16m", entries: 16 << 20, cap_bytes: 128 << 30, back_s: 10.0 },
];
const ARENA: &str = "64M";
const BLOCK_BYTES: u32 = 4096;
const SOCKET_BOUND_S: f64 = 0.1;
const ENTRY_BYTES_BOUND: f64 = 160.0;
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(1);
/// Keys that are looked up to see that the entries are what they should be.
const PROBES: u64 = 1000;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let empty_bytes = empty()?;
    for size in &SIZES[..effort.of(SIZES.len(), 1)] {
        measure(size, empty_bytes, effort, report)?;
    }
    Ok(())
}

/// Memory of a daemon that has nothing.
fn empty() -> anyhow::Result<u64> {
    let tier = Tier::new(&["--max-bytes", ARENA, "--long-bytes", "64M"])?;
    let daemon = tier.start()?;
    let memory = Memory::of(daemon.pid()).context("a daemon without memory")?;
    daemon.stop()?;
    Ok(memory.own_bytes)
}

fn measure(
    size: &Size,
    empty_bytes: u64,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Size { name, entries, .. } = size;
    let cap = size.cap_bytes.to_string();
    let tier = Tier::new(&["--max-bytes", ARENA, "--long-bytes", &cap])?;
    let plan = make(&tier, size)?;
    let (mut sockets, mut backs, mut memories) = (Vec::new(), Vec::new(), Vec::new());
    let rounds = effort.of(5, 3);
    for round in 1..=rounds {
        forget(&tier)?;
        let (socket, back, memory) = restart(&tier, *entries, round == rounds)?;
        sockets.push(socket);
        backs.push(back);
        memories.push(memory.saturating_sub(empty_bytes) as f64 / *entries as f64);
    }
    let [socket, back, memory] =
        [&mut sockets, &mut backs, &mut memories].map(|samples| crate::percentile::median(samples));
    report.note(
        format!("restart, {entries} entries"),
        format!("socket {:.1} ms, all back {back:.2} s, {memory:.0} bytes an entry", socket * 1e3),
    );
    report.bar(Bar::at_most(format!("l3.restart.{name}.socket_s"), socket, SOCKET_BOUND_S));
    report.bar(Bar::at_most(format!("l3.restart.{name}.back_s"), back, size.back_s));
    report.bar(Bar::at_most(format!("l3.restart.{name}.entry_bytes"), memory, ENTRY_BYTES_BOUND));
    let held = journals(&tier)? as f64;
    let bound = 2 * (plan.journal_bytes + plan.snapshot_bytes_max);
    report.note("  journals and snapshots", format!("{:.1} MB", held / 1e6));
    report.bar(Bar::at_most(format!("l3.restart.{name}.journals"), held / bound as f64, 1.0));
    Ok(())
}

/// Writes the files of a device with so many entries.
fn make(tier: &Tier, size: &Size) -> anyhow::Result<Plan> {
    let plan = Plan::for_cap(size.cap_bytes, None).context("planning the directory")?;
    std::fs::create_dir(tier.inside())?;
    let mut identity = [0; 32];
    Content::of(size.name.as_bytes()).fill(&mut identity);
    let (set, device) = identity.split_at(16);
    let superblock = Superblock {
        set_id: set.try_into()?,
        device_id: device.try_into()?,
        container_bytes: plan.container_bytes,
        journal_bytes: plan.journal_bytes,
        created_ms: 1,
    };
    let path = |name: &str| tier.inside().join(name);
    std::fs::write(path(geometry::SUPERBLOCK_NAME), superblock.encode())?;
    for number in 0..plan.containers_max {
        File::create_new(path(&geometry::container_name(number)))?.set_len(plan.container_bytes)?;
    }
    let files = [Half::A, Half::B].map(|half| {
        let journal = File::create_new(path(geometry::journal_name(half)))?;
        journal.set_len(plan.journal_bytes)?;
        anyhow::Ok([journal, File::create_new(path(geometry::snapshot_name(half)))?])
    });
    let [a, b] = files;
    write_entries(&[a?, b?], size.entries, &plan, superblock.tag())?;
    Ok(plan)
}

fn write_entries(
    files: &[[File; 2]; 2],
    entries: u64,
    plan: &Plan,
    tag: u64,
) -> anyhow::Result<()> {
    let space_bytes = plan.container_bytes * u64::from(plan.containers_max);
    let mut image = Image::new(Settings {
        tag,
        journal_bytes: plan.journal_bytes,
        snapshot_bytes_max: plan.snapshot_bytes_max,
        space_bytes,
        expected_bytes: space_bytes,
        hash_seed: 1,
        now: WallTime(0),
    });
    let mut failure = None;
    let mut write = |piece: ImagePiece| {
        let (half, which) = match piece.file {
            ImageFile::Journal(half) => (half, 0),
            ImageFile::Snapshot(half) => (half, 1),
        };
        let file = &files[usize::from(half == Half::B)][which];
        failure = failure.take().or(file.write_all_at(&piece.bytes, piece.offset).err());
    };
    for number in 0..entries {
        let entry = ImageEntry {
            namespace: NAMESPACE,
            key: &keys::key(number),
            len_bytes: BLOCK_BYTES,
            checksum: number,
            class: Retention::Long,
        };
        if !image.add(entry, &mut write) {
            bail!("there is no room for entry {number}");
        }
    }
    image.finish(&mut write);
    failure.map_or(Ok(()), |failure| Err(failure).context("writing the directory"))
}

/// Makes the kernel forget what it has of the files.
fn forget(tier: &Tier) -> anyhow::Result<()> {
    for entry in tier.inside().read_dir()? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

/// Seconds until the socket is open and until everything is back, and the memory then. The `last` round looks keys up:
/// that begins to read blocks of which there are only holes, and so removes them.
fn restart(tier: &Tier, entries: u64, last: bool) -> anyhow::Result<(f64, f64, u64)> {
    let begun = Instant::now();
    let mut daemon = tier.launch()?;
    while UnixStream::connect(daemon.socket()).is_err() {
        if begun.elapsed() > PATIENCE {
            bail!("no socket: {}", daemon.log());
        }
        patience::pause(PAUSE);
    }
    let socket = begun.elapsed().as_secs_f64();
    tier::until(&daemon, "all entries", |figures| {
        figures.is_disk_back() && figures.get("disk_entries") == entries
    })?;
    let back = begun.elapsed().as_secs_f64();
    daemon.wait_for_arena()?;
    let memory = Memory::of(daemon.pid()).context("a daemon without memory")?.own_bytes;
    if last {
        probe(&daemon.client("kvd-bench"), entries)?;
    }
    daemon.stop()?;
    Ok((socket, back, memory))
}

/// Looks up keys that are there and keys that are not.
fn probe(client: &Client, entries: u64) -> anyhow::Result<()> {
    let there = (0..PROBES).map(|probe| probe * (entries / PROBES));
    let keys: Vec<Key> = there.chain(entries..entries + PROBES).map(keys::key).collect();
    for (begin, keys) in keys.chunks(100).enumerate() {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
        let answer = client.locate(NAMESPACE, &keys, false);
        if let Some(trouble) = answer.trouble {
            bail!("looking up: {trouble}");
        }
        let expected = (begin as u64 * 100) < PROBES;
        if answer.items.iter().any(|item| item.is_ok() != expected) {
            bail!("keys from {} on: {:?} instead of {expected}", begin * 100, answer.items);
        }
    }
    Ok(())
}

/// Bytes of both journals and both snapshots.
fn journals(tier: &Tier) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in tier.inside().read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        if ["journal-", "snapshot-"].iter().any(|kind| name.to_string_lossy().starts_with(kind)) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
