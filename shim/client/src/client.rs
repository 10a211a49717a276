//! The client as engines hold it: a cheap handle to one shared connection.

use std::sync::Arc;

use crate::attachment::{Attached, Attachment};
use crate::deadline::Deadline;
use crate::error::ClientError;
use crate::line::{Line, Repeat};
use crate::live::{Incoming, Outgoing};
use crate::options::Options;
use crate::turnstile::Turnstile;

/// A connection to the daemon of this host, made when it is first needed and made again when it is
/// lost. Clones share it; calls of several threads take turns.
///
/// No call outlives its deadline, whatever the daemon does. While there is no daemon, look-ups are
/// misses that cost no waiting.
///
/// A forked child may go on using its parent's client: it gets a connection of its own. Views and
/// tickets of the parent stay the parent's.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
}

/// What a client, its views and its tickets share.
#[derive(Debug)]
pub(crate) struct Core {
    options: Options,
    line: Turnstile<Line>,
}

impl Client {
    /// A client that will connect when it is first asked for something.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { core: Arc::new(Core { options, line: Turnstile::new(Line::new) }) }
    }

    /// What the client was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.core.options
    }

    /// Connects now if there is no connection, and tells to what.
    ///
    /// # Errors
    /// Why there is no connection: no daemon, a refusal, another protocol, an arena that cannot be
    /// mapped, or the deadline of the options.
    pub fn attach(&self) -> Result<Attached, ClientError> {
        let deadline = self.core.deadline();
        let mut line = self.core.line.enter(deadline).ok_or_else(|| late(deadline))?;
        line.insist();
        let attachment = Arc::clone(line.attached(&self.core.options, deadline)?.attachment());
        drop(line);
        // What is held of earlier connections is said at once.
        self.core.give_back(&attachment);
        Ok(Attached::from(attachment.as_ref()))
    }
}

impl Core {
    /// The deadline of a call that was given none.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.options.deadline)
    }

    /// Sends a request and waits for its answer. `write` is called once per attempt, and there is a
    /// second attempt only if the request may be repeated.
    pub(crate) fn exchange<R>(
        &self,
        deadline: Deadline,
        repeat: Repeat,
        write: impl FnMut(Outgoing<'_>) -> Result<(), ClientError>,
        read: impl FnMut(Incoming<'_>) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        self.inside(deadline, |line| line.exchange(&self.options, deadline, repeat, write, read))
    }

    /// Sends what has no answer.
    pub(crate) fn tell(
        &self,
        deadline: Deadline,
        write: impl FnOnce(Outgoing<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        self.inside(deadline, |line| line.tell(&self.options, deadline, write))
    }

    /// Takes a turn at the connection.
    fn inside<R>(
        &self,
        deadline: Deadline,
        act: impl FnOnce(&mut Line) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let mut line = self.line.enter(deadline).ok_or_else(|| late(deadline))?;
        let answer = act(&mut line);
        let attachment = line.live().map(|live| Arc::clone(live.attachment()));
        drop(line);
        // Who dropped a view while this call was inside could not send its lease.
        if let Some(attachment) = attachment {
            self.give_back(&attachment);
        }
        answer
    }

    /// Sends what is due for return, unless somebody else is using the connection: whoever that is
    /// comes by here after leaving, so nothing stays behind.
    pub(crate) fn give_back(&self, attachment: &Arc<Attachment>) {
        while attachment.returns.are_due() {
            let sent = self.line.try_enter().is_some_and(|mut line| line.give_back(attachment));
            if !sent {
                return;
            }
        }
    }
}

fn late(deadline: Deadline) -> ClientError {
    ClientError::Deadline { waited_ms: deadline.waited_ms() }
}
