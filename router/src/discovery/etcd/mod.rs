//! Workers and daemons that register in etcd. `mirror` holds what is known of its keys and decides what that means; this file
//! connects, asks and waits, each with a deadline. A connection that fails in any way is given up as a whole: the next
//! one goes on where this one was, or begins anew if that can't be.

mod mirror;
mod source;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::Uri;
use kvd_etcd::{Etcd, Pause};
use kvd_proto::events::Registration;
use router_core::record::WorkerRecord;
use tokio::time::{sleep, timeout};

use self::mirror::{Change, Mirror};
use self::source::{Lost, Source, Watching};
use super::{HostTools, Standing, Tools};
use crate::fleet::Origin;
use crate::meters::Meters;
use crate::phase::{self, Phase};

/// After this long without a word it is asked whether something was missed.
const SILENCE: Duration = Duration::from_secs(15);
/// What was missed must come within this time, or the watch is dead.
const LATE: Duration = Duration::from_secs(2);

/// Ranks behind one URL: each is a target of its own.
const RANKS_MAX: u32 = 4_096;

/// Mirrors the workers' keys below `prefix` until the process is closing.
pub(super) async fn run(etcd: Etcd, prefix: String, tools: Tools) {
    let Tools { mut keeper, standing, meters, phase } = tools;
    let publish = move |records| keeper.publish(records, Origin::Registered, Instant::now());
    let (mirror, publish) = (Mirror::new(worker), Box::new(publish));
    follow(Source::new(etcd, prefix), mirror, publish, (standing, meters), phase).await;
}

/// Mirrors the daemons' keys below `prefix` until the process is closing.
pub(super) async fn run_hosts(etcd: Etcd, prefix: String, tools: HostTools) {
    let HostTools { registrations, meters, phase } = tools;
    let publish = move |records| drop(registrations.send_replace(records));
    let (mirror, publish) = (Mirror::new(host), Box::new(publish));
    follow(Source::new(etcd, prefix), mirror, publish, (Arc::default(), meters), phase).await;
}

async fn follow<R: PartialEq + Send + Sync>(
    source: Source,
    mirror: Mirror<R>,
    publish: Publish<R>,
    (standing, meters): (Arc<Standing>, Arc<Meters>),
    mut phase: phase::Current,
) {
    let mut follower = Follower { source, mirror, publish, standing, meters, is_told: false };
    tokio::select! {
        () = follower.follow() => {}
        () = phase::reached(&mut phase, Phase::Closing) => {}
    }
}

/// A worker's record that the router can act on, or why it is none.
fn worker(value: &[u8]) -> Result<Arc<WorkerRecord>, String> {
    let record = WorkerRecord::parse(value).map_err(|error| error.to_string())?;
    if !is_place(&record.url) {
        // Not shown: there may be a password in it.
        return Err("the url is not http://HOST:PORT, or https".to_owned());
    }
    match record.dp_size {
        Some(size) if size > RANKS_MAX => Err(format!("dp_size is {size}, at most {RANKS_MAX}")),
        _ => Ok(Arc::new(record)),
    }
}

/// Whether requests can be sent there: else each that this worker is picked for would fail, whoever else could answer it.
fn is_place(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else { return false };
    let (Some(authority), None) = (url.authority(), url.query()) else { return false };
    // Nothing in front of the host, and no port that is none: it would be taken for the one of the scheme.
    let host = authority.host();
    let place = authority.port_u16().map_or(host.to_owned(), |port| format!("{host}:{port}"));
    matches!(url.scheme_str(), Some("http" | "https")) && !host.is_empty() && authority == &*place
}

/// A daemon's record.
fn host(value: &[u8]) -> Result<Arc<Registration>, String> {
    let registration: Registration =
        serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if registration.host_id.is_empty() {
        return Err("it has no host_id".to_owned());
    }
    Ok(Arc::new(registration))
}

/// Takes all records that there are.
type Publish<R> = Box<dyn FnMut(Vec<Arc<R>>) + Send>;

struct Follower<R> {
    source: Source,
    mirror: Mirror<R>,
    publish: Publish<R>,
    standing: Arc<Standing>,
    meters: Arc<Meters>,
    /// Whether the log knows that etcd does not answer.
    is_told: bool,
}

impl<R: PartialEq> Follower<R> {
    async fn follow(&mut self) {
        let mut pause = Pause::default();
        loop {
            let Err(lost) = self.one_connection().await;
            self.standing.lose();
            if let Lost::Anew(_) = lost {
                self.mirror.forget_place();
            }
            // One line for each loss, not for each attempt at it.
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(reason = %lost, "etcd does not answer; the workers known so far are kept");
                pause.reset();
            }
            self.wait(pause.next(fastrand::f64())).await;
        }
    }

    /// Connects, catches up and follows, for as long as that goes well.
    async fn one_connection(&mut self) -> Result<std::convert::Infallible, Lost> {
        let mut source = self.source.connect().await?;
        if !self.can_resume(&source).await? {
            let listing = source.list().await?;
            let bad = self.mirror.load(listing, Instant::now());
            self.count_bad(bad);
            self.publish();
            // Also if etcd is lost before it can be followed.
            self.standing.sync();
        }
        let mut watching = source.watch(self.mirror.revision() + 1).await?;
        self.confirm();
        loop {
            let news = timeout(SILENCE.min(self.until_expiry()), watching.next()).await;
            match news {
                Ok(change) => self.apply(change?),
                Err(_elapsed) => {
                    self.expire();
                    self.compare(&mut source, &mut watching).await?;
                }
            }
            self.confirm();
        }
    }

    /// Whether one can go on where the last connection was.
    async fn can_resume(&mut self, source: &source::Connected) -> Result<bool, Lost> {
        let (cluster, revision) = source.place().await?;
        if !self.mirror.may_resume(cluster, revision) {
            return Ok(false);
        }
        let then = source.list_then(self.mirror.revision()).await?;
        Ok(then.is_some_and(|then| self.mirror.has_same_past(&then)))
    }

    /// Asks whether something was missed, and if so waits for it a moment.
    async fn compare(
        &mut self,
        source: &mut source::Connected,
        watching: &mut Watching,
    ) -> Result<(), Lost> {
        let keys = source.keys().await?;
        let late = tokio::time::Instant::now() + LATE;
        while !self.mirror.agrees(&keys) {
            let Ok(change) = tokio::time::timeout_at(late, watching.next()).await else {
                return Err(Lost::Anew("the watch does not tell what has changed"));
            };
            self.apply(change?);
        }
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        let bad = self.mirror.apply(change);
        self.count_bad(bad);
        self.publish();
    }

    fn confirm(&mut self) {
        if self.standing.confirm() {
            tracing::info!(
                prefix = self.source.prefix(),
                records = self.mirror.len(),
                "following etcd"
            );
        }
        self.is_told = false;
    }

    fn count_bad(&self, bad: Vec<String>) {
        for what in bad {
            self.meters.bad_records.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a record can't be read: {what}");
        }
    }

    fn publish(&mut self) {
        (self.publish)(self.mirror.records());
    }

    fn until_expiry(&self) -> Duration {
        let next = self.mirror.next_expiry();
        next.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Lets go of workers that were only kept for a while.
    fn expire(&mut self) {
        if self.mirror.expire(Instant::now()) {
            self.publish();
        }
    }

    /// Waits without etcd; what was kept for a while is let go of meanwhile.
    async fn wait(&mut self, pause: Duration) {
        sleep(pause).await;
        self.expire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_somewhere_or_its_record_is_bad() {
        let read = |url: &str| {
            worker(serde_json::json!({"worker_id": "w", "url": url}).to_string().as_bytes())
        };
        for url in [
            "http://10.0.0.1:8000",
            "http://10.0.0.1:8000/",
            "https://node-1:443",
            "http://node-1",
            "http://[fd00::1]:8000",
            "http://10.0.0.1:8000/base",
        ] {
            read(url).expect(url);
        }
        for url in [
            "",
            "10.0.0.1:8000",
            "ftp://10.0.0.1:21",
            "http://",
            "http://:8000",
            "http://a host:8000",
            "http://h:8000\r\nx: y",
            "http://h:65536",
            "http://h:-1",
            "http://h:",
            "http://h:8000?x=",
            "http://user:secret@h:8000",
        ] {
            let why = read(url).map(|_| url.to_owned()).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
