//! Keeping records in etcd under one lease for as long as they are wished for, whatever etcd does meanwhile. The next
//! connection looks whether the lease lives, so a restart of etcd takes nothing away.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::connection::{Connection, Etcd};
use crate::held::{Entry, Held, Step};
use crate::lost::Lost;
use crate::pause::Pause;

/// So often the lease is renewed, and looked whether its records stand as they should.
pub const BEAT: Duration = Duration::from_secs(10);
/// What a lease lives without that: a process that was killed is forgotten after it.
pub const LEASE: Duration = Duration::from_secs(30);

/// Whose records they are.
pub trait Owner: Send {
    /// A connection was made: the time to look up there what the records need.
    ///
    /// # Errors
    /// etcd does not answer.
    fn connected(
        &mut self,
        _connection: &Connection,
    ) -> impl Future<Output = Result<(), Lost>> + Send {
        std::future::ready(Ok(()))
    }

    /// What is to be there now; asked at each beat. The keys stay the same while they are held.
    fn entries(&mut self) -> impl Future<Output = Vec<Entry>> + Send;

    /// Is told how it goes.
    fn hear(&mut self, news: News<'_>);
}

/// How it goes.
#[derive(Debug)]
pub enum News<'a> {
    /// A record was put.
    Put {
        /// Where.
        key: &'a str,
        /// Under which lease.
        lease: i64,
    },
    /// All records stand as they should, or somebody else has them.
    Kept {
        /// They were lost before.
        is_back: bool,
    },
    /// Nothing is known of the records any more; it is tried on.
    Lost {
        /// Why.
        reason: &'a Lost,
        /// They were kept before, or nobody has been told yet.
        is_first: bool,
    },
    /// Another process has written the same key since, and has it.
    Contested {
        /// Which.
        key: &'a str,
    },
    /// The records are gone.
    LetGo {
        /// With this lease.
        lease: i64,
    },
    /// They can't be taken back, and stay until the lease ends.
    Stay {
        /// Why.
        reason: &'a Lost,
    },
}

/// Keeps records.
#[derive(Debug)]
pub struct Keeper {
    etcd: Etcd,
    /// What hangs there, if anything.
    held: Option<Held>,
    is_lost: bool,
}

impl Keeper {
    /// One that keeps nothing yet.
    #[must_use]
    pub fn new(etcd: Etcd) -> Self {
        Self { etcd, held: None, is_lost: false }
    }

    /// Keeps the owner's records there until it is dropped.
    pub async fn hold(&mut self, owner: &mut impl Owner) -> Infallible {
        let mut pause = Pause::default();
        loop {
            let Err(reason) = self.one_connection(owner, &mut pause).await;
            let is_first = !std::mem::replace(&mut self.is_lost, true);
            owner.hear(News::Lost { reason: &reason, is_first });
            sleep(pause.next(fastrand::f64())).await;
        }
    }

    /// Connects, and keeps them there for as long as that goes well.
    async fn one_connection(
        &mut self,
        owner: &mut impl Owner,
        pause: &mut Pause,
    ) -> Result<Infallible, Lost> {
        let connection = self.etcd.connect().await?;
        owner.connected(&connection).await?;
        if let Some(held) = &self.held
            && !connection.renew(held.lease).await?
        {
            self.held = None;
        }
        loop {
            self.look_after(owner, &connection).await?;
            pause.reset();
            owner.hear(News::Kept { is_back: std::mem::take(&mut self.is_lost) });
            sleep(BEAT).await;
            if let Some(held) = &self.held
                && !connection.renew(held.lease).await?
            {
                self.held = None;
                return Err(Lost::because("etcd does not know our lease any more"));
            }
        }
    }

    /// Puts what is not as it should be.
    async fn look_after(
        &mut self,
        owner: &mut impl Owner,
        connection: &Connection,
    ) -> Result<(), Lost> {
        if self.held.is_none() {
            // From here on there may be something to take away.
            self.held = Some(Held::new(connection.grant(LEASE).await?));
        }
        let Some(held) = &mut self.held else { return Ok(()) };
        for entry in owner.entries().await {
            let holder = connection.lease_of(&entry.key).await?;
            match held.step(&entry, holder) {
                Step::Nothing => {}
                Step::Contested => owner.hear(News::Contested { key: &entry.key }),
                Step::Put => {
                    connection.put(&entry, held.lease).await?;
                    owner.hear(News::Put { key: &entry.key, lease: held.lease });
                    held.put(entry);
                }
            }
        }
        Ok(())
    }

    /// Takes the records away, by their lease. What takes longer than `patience` is left to the lease's end.
    pub async fn let_go(&mut self, owner: &mut impl Owner, patience: Duration) {
        let Some(Held { lease, .. }) = self.held.take() else { return };
        let revoked = async { self.etcd.connect().await?.revoke(lease).await };
        let revoked = timeout(patience, revoked).await;
        match revoked.unwrap_or_else(|_elapsed| Err(Lost::because("no answer in time"))) {
            Ok(()) => owner.hear(News::LetGo { lease }),
            Err(reason) => owner.hear(News::Stay { reason: &reason }),
        }
    }
}
