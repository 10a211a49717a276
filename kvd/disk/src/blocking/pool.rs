//! What the threads of the pool share, and what each of them does.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::fault::Fault;
use crate::operation::{Completion, Operation};
use crate::system;
use crate::transfer::{Step, Transfer};
use crate::waker::Bell;

/// An operation with the file that it is on; the file stays open while the job lives.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) operation: Operation,
    pub(super) file: Arc<File>,
    pub(super) submitted: Instant,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// Bounded by its owner, which counts what is in flight.
#[derive(Debug)]
pub(super) struct Pool {
    queue: Mutex<Queue>,
    more: Condvar,
    done: Mutex<Vec<Completion>>,
    bell: Arc<Bell>,
}

impl Pool {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let bell = Bell::new()?;
        Ok(Arc::new(Self {
            queue: Mutex::default(),
            more: Condvar::new(),
            done: Mutex::default(),
            bell,
        }))
    }

    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(super) fn take(&self, job: Job) {
        lock(&self.queue).jobs.push_back(job);
        self.more.notify_one();
    }

    /// Puts a completion where the owner finds it, then rings.
    pub(super) fn ended(&self, completion: Completion) {
        lock(&self.done).push(completion);
        self.bell.wake();
    }

    /// Moves all completions over; how many.
    pub(super) fn reap(&self, to: &mut Vec<Completion>) -> usize {
        let mut done = lock(&self.done);
        let count = done.len();
        to.append(&mut done);
        count
    }

    /// Lets every thread end once the queue is empty.
    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
        self.more.notify_all();
    }

    /// The life of a thread.
    pub(super) fn work(&self) {
        while let Some(Job { operation, file, submitted }) = self.next() {
            let result = carry_out(&file, &operation);
            // Closed before the completion is seen: whoever detached the file and reaped its last operation may count on it.
            drop(file);
            self.ended(operation.ended(result, submitted.elapsed()));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            match queue.jobs.pop_front() {
                Some(job) => return Some(job),
                None if queue.closed => return None,
                None => queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn carry_out(file: &File, operation: &Operation) -> Result<(), Fault> {
    let mut transfer = Transfer::of(operation);
    let mut step = transfer.begin();
    loop {
        match step {
            Step::Call(call) => {
                step = transfer.answered(system::carry_out(file, operation, call));
            }
            Step::Ended(result) => return result,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics while it holds a lock half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
