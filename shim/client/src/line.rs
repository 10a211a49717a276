//! The connection through its whole life: absent, greeting, live, and absent again.
//!
//! Nothing here sleeps. While there is no daemon, calls fail at once, and only after a pause that
//! doubles with each failure does one of them try to connect again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::attachment::Attachment;
use crate::deadline::Deadline;
use crate::error::ClientError;
use crate::greeting::Greeting;
use crate::live::{Incoming, Live, Outgoing};
use crate::options::Options;
use crate::tenure::Tenure;

/// Pause after the first failed attempt; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether a request that a broken connection left unanswered may be sent again on a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Doing it twice is as good as once.
    Once,
    /// It refers to rights that died with the connection.
    Never,
}

#[derive(Debug)]
pub(crate) struct Line {
    link: Link,
    /// The arena of the latest connection that had one.
    tenure: Option<Tenure>,
    /// Failures since the last answer.
    failures: u32,
    /// No attempt before this time, unless somebody insists.
    closed_until: Option<Instant>,
    last_failure: io::ErrorKind,
}

#[derive(Debug)]
enum Link {
    Absent,
    Greeting(Greeting),
    Live(Live),
}

impl Line {
    pub(crate) fn new() -> Self {
        let last_failure = io::ErrorKind::NotConnected;
        Self { link: Link::Absent, tenure: None, failures: 0, closed_until: None, last_failure }
    }

    /// The live connection, if there is one, without making one.
    pub(crate) fn live(&mut self) -> Option<&mut Live> {
        match &mut self.link {
            Link::Live(live) => Some(live),
            Link::Absent | Link::Greeting(_) => None,
        }
    }

    /// Forgets that attempts have failed: somebody asked for one now.
    pub(crate) fn insist(&mut self) {
        self.closed_until = None;
    }

    /// Sends what has no answer, connecting first if need be.
    pub(crate) fn tell(
        &mut self,
        options: &Options,
        deadline: Deadline,
        write: impl FnOnce(Outgoing<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let told = self.attached(options, deadline)?.tell(deadline, write);
        if let Err(error) = &told
            && error.ends_connection()
        {
            self.lose(error);
        }
        told
    }

    /// Sends a request and waits for its answer, connecting first if need be.
    pub(crate) fn exchange<R>(
        &mut self,
        options: &Options,
        deadline: Deadline,
        repeat: Repeat,
        mut write: impl FnMut(Outgoing<'_>) -> Result<(), ClientError>,
        mut read: impl FnMut(Incoming<'_>) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let mut again = repeat == Repeat::Once;
        loop {
            let live = self.attached(options, deadline)?;
            let answer = live.exchange(deadline, &mut write, &mut read);
            match &answer {
                Err(error) if error.ends_connection() => self.lose(error),
                Err(ClientError::Deadline { .. }) => {}
                Ok(_) | Err(_) => self.failures = 0,
            }
            match answer {
                Err(ClientError::Disconnected { .. }) if again => again = false,
                answer => return answer,
            }
        }
    }

    /// Sends what `attachment` has queued for return; false if nothing could be sent now.
    pub(crate) fn give_back(&mut self, attachment: &Arc<Attachment>) -> bool {
        let is_held_there =
            |live: &&mut Live| Arc::ptr_eq(&live.attachment().returns, &attachment.returns);
        let Some(live) = self.live().filter(is_held_there) else {
            return false;
        };
        live.give_back().unwrap_or_else(|error| {
            self.lose(&error);
            false
        })
    }

    /// The live connection; connects or goes on connecting until the deadline.
    pub(crate) fn attached(
        &mut self,
        options: &Options,
        deadline: Deadline,
    ) -> Result<&mut Live, ClientError> {
        if let Link::Absent = self.link {
            self.connect(options, deadline)?;
        }
        if let Link::Greeting(greeting) = &mut self.link {
            match greeting.advance(&mut self.tenure, deadline) {
                Ok(attachment) => {
                    if let Link::Greeting(greeting) =
                        std::mem::replace(&mut self.link, Link::Absent)
                    {
                        self.link = Link::Live(Live::new(greeting.into_wire(), attachment));
                    }
                }
                Err(error) => {
                    if !matches!(error, ClientError::Deadline { .. })
                        || greeting.is_overdue(options)
                    {
                        self.lose(&error);
                    }
                    return Err(error);
                }
            }
        }
        let failure = self.last_failure;
        self.live().ok_or_else(|| absent(options, failure.into()))
    }

    fn connect(&mut self, options: &Options, deadline: Deadline) -> Result<(), ClientError> {
        if let Some(tenure) = &mut self.tenure {
            tenure.tire(Instant::now());
        }
        if self.closed_until.is_some_and(|until| Instant::now() < until) {
            return Err(absent(options, self.last_failure.into()));
        }
        match Greeting::begin(options, deadline) {
            Ok(greeting) => {
                self.link = Link::Greeting(greeting);
                Ok(())
            }
            Err(source) => {
                let error = absent(options, source);
                self.lose(&error);
                Err(error)
            }
        }
    }

    fn lose(&mut self, error: &ClientError) {
        if let (Link::Live(live), Some(tenure)) = (&self.link, &mut self.tenure)
            && let Attachment { arena: Some(mapping), abilities, .. } = live.attachment().as_ref()
            && abilities.resumes
        {
            tenure.keep(Arc::clone(mapping), Instant::now());
        }
        self.link = Link::Absent;
        self.last_failure = match error {
            ClientError::NotConnected { source, .. } | ClientError::Disconnected { source } => {
                source.kind()
            }
            _ => io::ErrorKind::NotConnected,
        };
        // The first loss after an answer is retried at once: a daemon that restarts is back soon.
        self.closed_until = self.failures.checked_sub(1).map(|repeated| {
            let pause = PAUSE_MIN.saturating_mul(1 << repeated.min(16));
            Instant::now() + pause.min(PAUSE_MAX)
        });
        self.failures = self.failures.saturating_add(1);
    }
}

fn absent(options: &Options, source: io::Error) -> ClientError {
    ClientError::NotConnected { socket: options.socket.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_retried_at_once_and_pauses_grow_to_a_limit() {
        let mut line = Line::new();
        let error = ClientError::Disconnected { source: io::ErrorKind::ConnectionReset.into() };
        let mut pauses = Vec::new();
        for _ in 0..40 {
            line.lose(&error);
            let now = Instant::now();
            pauses.push(line.closed_until.map(|until| until.saturating_duration_since(now)));
        }
        assert_eq!(pauses[0], None);
        // Time passes between the loss and the look, so a pause can be found shorter, never longer.
        for (repeated, pause) in pauses[1..].iter().enumerate() {
            let expected = PAUSE_MIN * 2_u32.pow(u32::try_from(repeated.min(10)).expect("small"));
            assert!(pause.is_some_and(|pause| pause <= expected.min(PAUSE_MAX)), "{repeated}");
        }
        assert_eq!(line.last_failure, io::ErrorKind::ConnectionReset);
        line.insist();
        assert_eq!(line.closed_until, None);
    }
}
