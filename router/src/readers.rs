//! Reading bodies without holding up anybody else: a short one is read where it is, a long one by a thread that may take
//! its time, a few at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::refusal::Refusal;

/// Up to this length a body is read at once: 0.1 ms, little more than it takes to hand it to another thread and back.
const SHORT_BYTES: usize = 64 << 10;
/// How long a long one waits for its turn and is read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Those who read.
#[derive(Debug)]
pub struct Readers {
    free: Arc<Semaphore>,
}

impl Default for Readers {
    /// One for each processor.
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Readers {
    /// So many long bodies are read at the same time.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)) }
    }

    /// What `read` makes of `body`.
    ///
    /// # Errors
    /// Others were in front of it for too long.
    pub async fn read<T: Send + 'static>(
        &self,
        body: &Bytes,
        read: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        if body.len() <= SHORT_BYTES {
            return Ok(read(body));
        }
        let (free, body) = (Arc::clone(&self.free), body.clone());
        let done = async {
            let turn = free.acquire_owned().await.ok()?;
            // Whoever is read keeps the turn, even if nobody waits any more.
            let reading = spawn_blocking(move || {
                let read = read(&body);
                drop(turn);
                read
            });
            reading.await.ok()
        };
        timeout(PATIENCE, done).await.ok().flatten().ok_or(Refusal::Overloaded)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tokio::task::JoinSet;
    use tokio::time::advance;

    use super::*;
    use crate::request::Fields;

    /// A chat of this length.
    fn chat(bytes: usize) -> Bytes {
        let (before, after) = (r#"{"model":"m","messages":[{"content":""#, r#""}]}"#);
        let text = "x".repeat(bytes - before.len() - after.len());
        Bytes::from(format!("{before}{text}{after}"))
    }

    type Tasks = JoinSet<Result<Option<String>, Refusal>>;

    /// Occupies a reader until something is sent.
    fn occupy(readers: &Arc<Readers>, tasks: &mut Tasks) -> Sender<()> {
        let (go_on, wait) = channel();
        let readers = Arc::clone(readers);
        tasks.spawn(async move {
            let wait = move |_body: &[u8]| {
                wait.recv().unwrap_or_default();
                None
            };
            readers.read(&chat(SHORT_BYTES + 1), wait).await
        });
        go_on
    }

    fn model(body: &[u8]) -> Option<String> {
        Fields::read(body).unwrap().model
    }

    async fn others_have_their_turn() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// There is one thread for all tasks here, so whoever reads on it holds up everybody.
    #[tokio::test]
    async fn long_bodies_hold_up_nobody_and_wait_for_each_other() {
        let (readers, mut tasks) = (Arc::new(Readers::new(1)), Tasks::new());
        let go_on = occupy(&readers, &mut tasks);
        others_have_their_turn().await;
        let for_long = Arc::clone(&readers);
        let long = tasks.spawn(async move { for_long.read(&chat(60 << 20), model).await });
        others_have_their_turn().await;
        // Meanwhile another request is read, and whatever else there is goes on.
        assert_eq!(readers.read(&chat(SHORT_BYTES), model).await, Ok(Some("m".to_owned())));
        assert!(!long.is_finished(), "one is read at a time");
        go_on.send(()).unwrap();
        let all = tasks.join_all().await;
        assert!(all.contains(&Ok(Some("m".to_owned()))), "{all:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_too_long_is_turned_away_and_gives_nothing_up() {
        let (readers, mut tasks) = (Arc::new(Readers::new(1)), Tasks::new());
        let go_on = occupy(&readers, &mut tasks);
        others_have_their_turn().await;
        let long = chat(SHORT_BYTES + 1);
        let late = async { tokio::join!(readers.read(&long, model), advance(PATIENCE)).0 };
        assert_eq!(late.await, Err(Refusal::Overloaded));
        go_on.send(()).unwrap();
        // It was waited for as long, but it is the thread that has the turn.
        tasks.join_all().await;
        assert_eq!(readers.read(&long, model).await, Ok(Some("m".to_owned())));
    }

    #[tokio::test]
    async fn where_a_body_is_read_depends_on_its_length() {
        let here = std::thread::current().id();
        let readers = Readers::new(1);
        let thread = |_body: &[u8]| std::thread::current().id();
        assert_eq!(readers.read(&chat(SHORT_BYTES), thread).await.unwrap(), here);
        assert_ne!(readers.read(&chat(60 << 20), thread).await.unwrap(), here);
    }
}
