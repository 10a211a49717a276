//! Every interleaving of one writer and one reader of a header, by the model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p kvd-shm --release --test loom_header --target-dir target/loom`
//!
//! The payload is two words that the writer sets to the version under which it publishes them, so a
//! believed read is right if both words and the length equal the version. The broken twins move one
//! payload store to the wrong side of a header store; the model must catch each.

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "test code")]

use kvd_shm::header::{Header, HeaderWords};
use kvd_shm::sync::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

#[derive(Clone, Copy, PartialEq)]
enum Writer {
    Right,
    /// The payload changes before the header says so.
    EarlyPayload,
    /// The payload is finished after the header says so.
    LatePayload,
}

struct Extent {
    version: AtomicU32,
    len: AtomicU32,
    payload: [AtomicU32; 2],
}

impl Extent {
    /// As published under version 2.
    fn published() -> Self {
        Self {
            version: AtomicU32::new(2_u32.to_le()),
            len: AtomicU32::new(2_u32.to_le()),
            payload: [AtomicU32::new(2), AtomicU32::new(2)],
        }
    }

    fn header(&self) -> HeaderWords<'_> {
        HeaderWords::new(&self.version, &self.len)
    }

    fn write(&self, writer: Writer) {
        if writer == Writer::EarlyPayload {
            self.payload[0].store(4, Ordering::Relaxed);
        }
        self.header().write_odd(3);
        self.payload[0].store(4, Ordering::Relaxed);
        if writer != Writer::LatePayload {
            self.payload[1].store(4, Ordering::Relaxed);
        }
        self.header().publish(4, 4);
        if writer == Writer::LatePayload {
            self.payload[1].store(4, Ordering::Relaxed);
        }
    }

    /// The header and the payload of one attempt to read.
    fn look(&self) -> (Header, [u32; 2]) {
        let seen = self.header().read();
        (seen, [0, 1].map(|index| self.payload[index].load(Ordering::Relaxed)))
    }
}

/// A reader that looks at the version again after its copy believes nothing torn.
fn rewritten_while_read(writer: Writer) {
    loom::model(move || {
        let extent = Arc::new(Extent::published());
        let written = Arc::clone(&extent);
        let writing = thread::spawn(move || written.write(writer));
        let (seen, payload) = extent.look();
        if seen.version % 2 == 0 && extent.header().unchanged_since(seen) {
            assert_eq!(payload, [seen.version; 2], "torn read believed");
        }
        writing.join().unwrap();
    });
}

/// A protocol-1 reader: it looks before its copy only, and believes the version that it was told.
fn read_once_published(writer: Writer) {
    loom::model(move || {
        let extent = Arc::new(Extent::published());
        let written = Arc::clone(&extent);
        let writing = thread::spawn(move || written.write(writer));
        let (seen, payload) = extent.look();
        if seen.version == 4 {
            assert_eq!(seen.len, 4, "length believed too early");
            assert_eq!(payload, [4, 4], "torn read believed");
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_believed_read_is_never_torn() {
    rewritten_while_read(Writer::Right);
}

#[test]
fn a_published_payload_is_complete() {
    read_once_published(Writer::Right);
}

#[test]
#[should_panic(expected = "torn read believed")]
fn negative_control_early_payload_is_caught() {
    rewritten_while_read(Writer::EarlyPayload);
}

#[test]
#[should_panic(expected = "torn read believed")]
fn negative_control_late_payload_is_caught_by_the_second_look() {
    rewritten_while_read(Writer::LatePayload);
}

#[test]
#[should_panic(expected = "torn read believed")]
fn negative_control_late_payload_is_caught() {
    read_once_published(Writer::LatePayload);
}
