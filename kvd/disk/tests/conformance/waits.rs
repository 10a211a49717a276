//! Waits end when they should, and no wake is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kvd_disk::Operation;

use crate::rig::{FILE, Kind, PATIENCE, Rig, bytes_of, owned};

pub(crate) fn a_wait_without_anything_ends(kind: Kind) {
    let mut rig = Rig::new(kind, 4);
    let mut done = Vec::new();
    for timeout in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(20)] {
        rig.disk.wait(timeout, &mut done).unwrap();
        assert!(done.is_empty());
    }
}

pub(crate) fn a_wake_ends_a_wait(kind: Kind) {
    let mut rig = Rig::new(kind, 4);
    let (acknowledge, acknowledged) = mpsc::channel();
    let waker = rig.disk.waker();
    let sent = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&sent);
    let thread = std::thread::Builder::new().spawn(move || {
        for round in 1..=2000 {
            counter.store(round, Ordering::Relaxed);
            waker.wake();
            acknowledged.recv().unwrap();
        }
    });
    let (mut seen, mut done) = (0, Vec::new());
    while seen < 2000 {
        rig.disk.wait(PATIENCE, &mut done).unwrap();
        let now = sent.load(Ordering::Relaxed);
        if now > seen {
            seen = now;
            acknowledge.send(()).unwrap();
        }
    }
    thread.unwrap().join().unwrap();
    assert!(done.is_empty());
}

pub(crate) fn a_wake_before_the_wait_counts(kind: Kind) {
    let mut rig = Rig::new(kind, 4);
    let mut done = Vec::new();
    for _ in 0..100 {
        rig.disk.waker().wake();
        rig.disk.waker().wake();
        rig.disk.wait(PATIENCE, &mut done).unwrap();
    }
}

pub(crate) fn no_wake_of_a_storm_is_lost(kind: Kind) {
    const WAKES: u32 = 5000;
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &[7; 4096], 0);
    let sent = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (waker, sent) = (rig.disk.waker(), Arc::clone(&sent));
            let storm = move || {
                for _ in 0..WAKES {
                    sent.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            };
            std::thread::Builder::new().spawn(storm).unwrap()
        })
        .collect();
    let (mut read, mut done) = (0, Vec::new());
    while sent.load(Ordering::Relaxed) < 4 * WAKES || read < 200 {
        if rig.disk.submit(Operation::read(0, FILE, 0, owned(&[0; 4096]))).is_ok() {
            read += 1;
        }
        rig.disk.wait(PATIENCE, &mut done).unwrap();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    while rig.disk.in_flight() > 0 {
        rig.disk.wait(PATIENCE, &mut done).unwrap();
    }
    assert_eq!(done.len(), read);
    assert!(done.into_iter().all(|done| bytes_of(done.memory.unwrap()) == [7; 4096]));
}

pub(crate) fn a_waker_outlives_the_disk(kind: Kind) {
    let rig = Rig::new(kind, 8);
    let waker = rig.disk.waker();
    drop(rig);
    waker.wake();
    waker.wake();
}
