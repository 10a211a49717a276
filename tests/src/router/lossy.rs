//! A line between a daemon's publisher and its subscribers that loses messages, but never figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kvd_proto::events::frames::{EVENTS_TOPIC, STATS_TOPIC};
use zmq::{Context, DONTWAIT, POLLIN, SocketType};

/// A line that is up. It ends with this value.
#[derive(Debug)]
pub struct Lossy {
    endpoint: String,
    lost: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lossy {
    /// Lays one from the publisher at `endpoint` that loses every message whose number `every` divides.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn from(endpoint: &str, every: u64) -> Self {
        let context = Context::new();
        let near = context.socket(SocketType::SUB).expect("a socket");
        near.set_rcvhwm(200_000).expect("an option");
        for topic in [EVENTS_TOPIC, STATS_TOPIC] {
            near.set_subscribe(topic.as_bytes()).expect("an option");
        }
        near.connect(endpoint).expect("connecting");
        let far = context.socket(SocketType::PUB).expect("a socket");
        far.set_linger(0).expect("an option");
        far.bind("tcp://127.0.0.1:*").expect("binding");
        let endpoint = far.get_last_endpoint().expect("an endpoint").expect("text");
        let (lost, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, until) = (Arc::clone(&lost), Arc::clone(&is_over));
        let carry = move || {
            while !until.load(Ordering::Relaxed) {
                near.poll(POLLIN, 20).expect("polling");
                while let Ok(frames) = near.recv_multipart(DONTWAIT) {
                    let seq = frames[1].as_slice().try_into().map(u64::from_be_bytes);
                    let is_event = frames[0] == EVENTS_TOPIC.as_bytes();
                    if is_event && seq.expect("a number").is_multiple_of(every) {
                        counted.fetch_add(1, Ordering::Relaxed);
                    } else {
                        far.send_multipart(frames, DONTWAIT).expect("publishing");
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("lossy".to_owned()).spawn(carry);
        Self { endpoint, lost, is_over, thread: Some(thread.expect("starting a thread")) }
    }

    /// Where it ends.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Messages that it lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It is a test that panics, if anybody.
            drop(thread.join());
        }
    }
}
