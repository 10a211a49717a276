//! How far the process has come in its life. Whoever waits for a later phase holds a receiver.

use tokio::sync::watch;

/// In this order, never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are served.
    Serving,
    /// They still are, but `/ready` says that the end is near.
    Leaving,
    /// No connection is accepted; answers in flight go on.
    Closing,
    /// Answers in flight are cut off.
    Ending,
}

/// The current phase.
pub type Current = watch::Receiver<Phase>;

/// Waits until `phase` has come.
pub async fn reached(current: &mut Current, phase: Phase) {
    if current.wait_for(|now| *now >= phase).await.is_err() {
        // Whoever sets the phase is gone, and so is the process, nearly: it was told to end at once.
        std::future::pending().await
    }
}
