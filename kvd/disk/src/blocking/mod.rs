//! The engine that works everywhere: a bounded pool of named threads, one positioned call each.
//!
//! The threads take jobs from one queue and put completions into one list; the owner sleeps on its
//! bell, which a completion rings like any other waker. `pool.rs` is the threads' side.

mod pool;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::fault::Fault;
use crate::operation::{Completion, FileId, Operation};
use crate::waker::Waker;
use pool::{Job, Pool};

/// Threads of one disk, at most: direct I/O saturates a device long before.
pub const THREADS_MAX: usize = 64;

/// A disk whose operations are blocking calls on threads of its own.
#[derive(Debug)]
pub struct BlockingDisk {
    files: BTreeMap<FileId, Arc<File>>,
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
    depth: usize,
    in_flight: usize,
}

impl BlockingDisk {
    /// Starts the threads, named `{name}-{number}`; as many as operations may be in flight, but
    /// no more than [`THREADS_MAX`].
    ///
    /// # Errors
    /// If the process may not have more threads or descriptors.
    ///
    /// # Panics
    /// If `depth` is zero.
    pub fn new(name: &str, depth: usize) -> io::Result<Self> {
        assert!(depth > 0, "a disk that takes no operation");
        let pool = Pool::new()?;
        let threads = Vec::new();
        let files = BTreeMap::new();
        // From here on, dropping `disk` stops the threads that were started.
        let mut disk = Self { files, pool, threads, depth, in_flight: 0 };
        for number in 0..depth.min(THREADS_MAX) {
            let pool = Arc::clone(&disk.pool);
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            disk.threads.push(thread.spawn(move || pool.work())?);
        }
        Ok(disk)
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> bool {
        let reaped = self.pool.reap(done);
        self.in_flight = self.in_flight.saturating_sub(reaped);
        reaped > 0
    }
}

impl Disk for BlockingDisk {
    fn attach(&mut self, file: FileId, handle: File) {
        let before = self.files.insert(file, Arc::new(handle));
        assert!(before.is_none(), "file {file} is attached already");
    }

    fn detach(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Operation> {
        if self.in_flight >= self.depth {
            return Err(operation);
        }
        self.in_flight = self.in_flight.saturating_add(1);
        match self.files.get(&operation.file()) {
            Some(handle) => {
                let file = Arc::clone(handle);
                self.pool.take(Job { operation, file, submitted: Instant::now() });
            }
            None => {
                let fault = Fault::NotAttached { file: operation.file() };
                self.pool.ended(operation.ended(Err(fault), Duration::ZERO));
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Completion>) -> io::Result<()> {
        if self.reap(done) || timeout.is_zero() {
            self.pool.bell().get_up();
            return Ok(());
        }
        self.pool.bell().sleep(timeout)?;
        self.reap(done);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.pool.bell().waker()
    }

    fn engine(&self) -> &'static str {
        "blocking"
    }

    fn arena_touched(&mut self, _bytes: u64) -> u64 {
        0
    }

    fn shut_down(self: Box<Self>) {}
}

impl Drop for BlockingDisk {
    /// Lets the threads finish the queue, and waits for them.
    fn drop(&mut self) {
        self.pool.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told its own story; there is nothing left to wait for.
            let _panicked = thread.join().is_err();
        }
    }
}
