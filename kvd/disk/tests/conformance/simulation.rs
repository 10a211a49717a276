//! What only the simulation has: faults on demand, its own time, and crashes.

use std::time::Duration;

use kvd_disk::sim::crash::Image;
use kvd_disk::sim::{Faults, SimConfig, SimControl, SimDisk};
use kvd_disk::{Action, AlignedBuffer, Completion, Disk, Fault, Memory, Operation};

use crate::rig::{FILE, PATIENCE, bytes_of, finish, owned, pattern};

const ALWAYS: u32 = 1_000_000;
const FILE_BYTES: usize = 64 << 10;

fn disk(config: SimConfig) -> (SimDisk, SimControl) {
    let (mut disk, control) = SimDisk::new(config).unwrap();
    control.make(FILE, pattern(FILE_BYTES, 0));
    disk.attach_made(FILE);
    (disk, control)
}

fn faulty(faults: Faults) -> (SimDisk, SimControl) {
    disk(SimConfig { faults, ..SimConfig::from_seed(3) })
}

fn carry_out(disk: &mut SimDisk, operation: Operation) -> Completion {
    let token = operation.token();
    disk.submit(operation).unwrap();
    finish(disk).remove(&token).unwrap()
}

fn read_all(disk: &mut SimDisk) -> Completion {
    let memory = Memory::Owned(AlignedBuffer::zeroed(FILE_BYTES));
    carry_out(disk, Operation::read(0, FILE, 0, memory))
}

/// The file with those bytes written at 8192.
fn with(bytes: &[u8]) -> Vec<u8> {
    let mut file = pattern(FILE_BYTES, 0);
    file[8192..8192 + bytes.len()].copy_from_slice(bytes);
    file
}

/// Writes 16 KiB at 8192 and reads the file back.
fn write(disk: &mut SimDisk) -> (Result<(), Fault>, Vec<u8>) {
    let written = carry_out(disk, Operation::write(1, FILE, 8192, owned(&pattern(16_384, 1))));
    let read = read_all(disk);
    (written.result, bytes_of(read.memory.unwrap()))
}

#[test]
fn lost_writes_are_told_as_done() {
    let (mut disk, control) = faulty(Faults { lost_writes: ALWAYS, ..Faults::default() });
    let (result, file) = write(&mut disk);
    assert_eq!(result, Ok(()));
    assert!(file == pattern(FILE_BYTES, 0));
    assert!(control.pristine(FILE).unwrap() == with(&pattern(16_384, 1)));
}

#[test]
fn torn_writes_miss_some_sectors() {
    let (mut disk, _) = faulty(Faults { torn_writes: ALWAYS, ..Faults::default() });
    let (result, file) = write(&mut disk);
    assert_eq!(result, Ok(()));
    let (old, new) = (pattern(FILE_BYTES, 0), with(&pattern(16_384, 1)));
    assert!(file != old && file != new);
    for (at, sector) in file.chunks(512).enumerate() {
        let range = at * 512..at * 512 + 512;
        assert!(sector == &old[range.clone()] || sector == &new[range], "sectors are whole");
    }
}

#[test]
fn misdirected_writes_land_elsewhere_in_the_file() {
    let (mut disk, _) = faulty(Faults { misdirected_writes: ALWAYS, ..Faults::default() });
    let (result, file) = write(&mut disk);
    assert_eq!(result, Ok(()));
    assert_eq!(file.len(), FILE_BYTES);
    let bytes = pattern(16_384, 1);
    let found = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
    assert!(found % 512 == 0 && found != 8192);
}

#[test]
fn failed_writes_may_leave_anything_between() {
    let (mut disk, control) = faulty(Faults { failed_writes: ALWAYS, ..Faults::default() });
    let (result, file) = write(&mut disk);
    assert_eq!(result, Err(Fault::Errno(libc::EIO)));
    assert!(file != with(&pattern(16_384, 1)));
    assert!(control.pristine(FILE).unwrap() == pattern(FILE_BYTES, 0));
    control.heal();
    assert_eq!(write(&mut disk), (Ok(()), with(&pattern(16_384, 1))));
}

#[test]
fn a_full_disk_says_so_and_changes_nothing() {
    let (mut disk, control) = faulty(Faults { no_space: ALWAYS, ..Faults::default() });
    let (result, file) = write(&mut disk);
    assert!(result.unwrap_err().is_no_space());
    assert!(file == pattern(FILE_BYTES, 0));
    control.set_faults(Faults::default());
    assert_eq!(write(&mut disk).0, Ok(()));
}

#[test]
fn bit_rot_flips_one_bit_and_stays() {
    let (mut disk, control) = faulty(Faults { bit_rot: ALWAYS, ..Faults::default() });
    let first = bytes_of(read_all(&mut disk).memory.unwrap());
    control.heal();
    let second = bytes_of(read_all(&mut disk).memory.unwrap());
    assert!(first == second);
    let pairs = first.iter().zip(pattern(FILE_BYTES, 0));
    assert_eq!(pairs.map(|(rotten, sound)| (rotten ^ sound).count_ones()).sum::<u32>(), 1);
    assert!(
        control.crash_after(control.steps()).subset(0)[&FILE] == first,
        "a crash heals nothing"
    );
}

#[test]
fn failed_reads_and_syncs_say_so() {
    let faults = Faults { failed_reads: ALWAYS, failed_syncs: ALWAYS, ..Faults::default() };
    let (mut disk, _) = faulty(faults);
    assert_eq!(read_all(&mut disk).result, Err(Fault::Errno(libc::EIO)));
    let sync = carry_out(&mut disk, Operation::sync(1, FILE));
    assert_eq!(sync.result, Err(Fault::Errno(libc::EIO)));
}

#[test]
fn a_bad_place_fails_until_it_is_healed() {
    let (mut disk, control) = faulty(Faults::default());
    control.break_range(FILE, Action::Read, 8192..8193, libc::EIO);
    control.break_range(FILE, Action::Write, 0..512, libc::ENOSPC);
    let read = |disk: &mut SimDisk, offset| {
        carry_out(disk, Operation::read(0, FILE, offset, owned(&[0; 4096]))).result
    };
    assert_eq!(read(&mut disk, 4096), Ok(()));
    assert_eq!(read(&mut disk, 4097), Err(Fault::Errno(libc::EIO)));
    assert_eq!(read(&mut disk, 8192), Err(Fault::Errno(libc::EIO)));
    assert_eq!(read(&mut disk, 8193), Ok(()));
    let written = carry_out(&mut disk, Operation::write(0, FILE, 511, owned(&[1; 9])));
    assert_eq!(written.result, Err(Fault::Errno(libc::ENOSPC)));
    control.heal();
    assert_eq!(read(&mut disk, 8192), Ok(()));
}

#[test]
fn time_is_the_disks_own() {
    let (mut disk, control) = disk(SimConfig::from_seed(1));
    let mut done = Vec::new();
    disk.wait(Duration::from_secs(86_400), &mut done).unwrap();
    assert_eq!(control.now(), Duration::from_secs(86_400), "a day in no time");
    let began = control.now();
    let read = read_all(&mut disk);
    assert!((50..=500).contains(&read.took.as_micros()), "{:?}", read.took);
    assert_eq!(control.now() - began, read.took);
    disk.waker().wake();
    disk.wait(Duration::from_secs(1), &mut done).unwrap();
    assert_eq!(control.now() - began, read.took, "a wake costs no time");
    assert!(done.is_empty());
}

#[test]
fn a_disk_that_hangs_ends_nothing() {
    let (mut disk, control) = disk(SimConfig::from_seed(1));
    disk.submit(Operation::sync(5, FILE)).unwrap();
    control.hold(true);
    let mut done = Vec::new();
    for _ in 0..10 {
        disk.wait(PATIENCE, &mut done).unwrap();
        assert!(done.is_empty() && disk.in_flight() == 1);
    }
    assert_eq!(control.now(), 10 * PATIENCE);
    control.hold(false);
    assert_eq!(finish(&mut disk)[&5].took, 10 * PATIENCE);
}

type Seen = (u64, Result<(), Fault>, Duration);

/// A workload under many faults, as everything that can be seen of it.
fn trace(seed: u64) -> (Vec<Seen>, Vec<u8>) {
    let rate = 100_000;
    let faults = Faults {
        failed_reads: rate,
        failed_writes: rate,
        no_space: rate,
        failed_syncs: rate,
        lost_writes: rate,
        torn_writes: rate,
        misdirected_writes: rate,
        bit_rot: rate,
    };
    let (mut disk, control) = disk(SimConfig { faults, ..SimConfig::from_seed(seed) });
    let mut done = Vec::new();
    for token in 0..300 {
        let offset = token * 977 % 60_000;
        let operation = match token % 3 {
            0 => Operation::write(token, FILE, offset, owned(&pattern(3000, token))),
            1 => Operation::read(token, FILE, offset, owned(&[0; 3000])),
            _two => Operation::sync(token, FILE),
        };
        let mut operation = Some(operation);
        while let Some(refused) = operation.take() {
            operation = disk.submit(refused).err();
            if operation.is_some() {
                disk.wait(PATIENCE, &mut done).unwrap();
            }
        }
    }
    while disk.in_flight() > 0 {
        disk.wait(PATIENCE, &mut done).unwrap();
    }
    let seen = done.iter().map(|done| (done.token, done.result, done.took)).collect();
    (seen, control.contents(FILE).unwrap())
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    assert!(trace(1) == trace(1));
    assert!(trace(1) != trace(2));
    let (seen, _) = trace(1);
    assert!(!seen.is_sorted_by_key(|(token, ..)| *token), "operations overtake each other");
    assert!(seen.iter().any(|(_, result, _)| result.is_err()));
}

/// Puts numbered sectors down one after the other, each synced before it is acknowledged, or not. The
/// numbers of steps after which the acknowledgements came.
fn acknowledge(syncs: bool) -> (SimControl, Vec<usize>) {
    let (mut disk, control) = disk(SimConfig::from_seed(5));
    let acknowledged_at = (0..12_u64)
        .map(|number| {
            let sector = owned(&[sector_of(number); 1024]);
            let write = Operation::write(0, FILE, number * 1024, sector);
            assert_eq!(carry_out(&mut disk, write).result, Ok(()));
            if syncs {
                assert_eq!(carry_out(&mut disk, Operation::sync(1, FILE)).result, Ok(()));
            }
            control.steps()
        })
        .collect();
    (control, acknowledged_at)
}

fn sector_of(number: u64) -> u8 {
    u8::try_from(number + 100).unwrap()
}

/// Whether a crash at any step, losing anything that it may, loses something acknowledged.
fn loses_anything((control, acknowledged_at): (SimControl, Vec<usize>)) -> bool {
    let holds = |image: &Image, number: usize| {
        let sector = sector_of(number as u64);
        image[&FILE][number * 1024..][..1024].iter().all(|byte| *byte == sector)
    };
    // The first step is the making of the file.
    (1..=control.steps()).any(|steps| {
        let point = control.crash_after(steps);
        let acknowledged = acknowledged_at.iter().take_while(|at| **at <= steps).count();
        let images =
            point.subsets(9, 64).chain(point.torn(512, 9, 16)).chain(point.torn(4096, 9, 4));
        images.into_iter().any(|image| (0..acknowledged).any(|number| !holds(&image, number)))
    })
}

#[test]
fn a_crash_spares_what_is_synced() {
    assert!(!loses_anything(acknowledge(true)));
}

#[test]
fn negative_control_a_crash_takes_what_is_not_synced() {
    assert!(loses_anything(acknowledge(false)));
}

#[test]
fn a_crash_may_take_what_is_in_flight_or_not() {
    let (mut disk, control) = disk(SimConfig::from_seed(1));
    let before = control.steps();
    for token in 0..3 {
        disk.submit(Operation::write(token, FILE, token, owned(&[0xaa]))).unwrap();
    }
    finish(&mut disk);
    let point = control.crash_after(before);
    assert_eq!(point.loose_writes(), 3, "submitted before the crash");
    assert_eq!(point.subsets(0, 0).count(), 8);
    assert_eq!(control.crash_after(before - 1).loose_writes(), 0);
}
