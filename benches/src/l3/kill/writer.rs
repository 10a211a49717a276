//! A writer: a namespace of its own, keys of its own, random deeds until the daemon is gone.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use kvd_client::{ClearScope, Client, Commit, Namespace, Retention, View};

use super::history::{Deed, Ends, Found, History, Put, Verdict};
use crate::content::Content;
use crate::daemon;
use crate::in_place;
use crate::keys::{self, Key};
use crate::patience::PATIENCE;

/// Sizes of values: whole pages and not, small and large.
const SIZES: [usize; 6] = [100, 4096, 5000, 65_536, 200_000, 524_288];
const TTLS_MS: [u64; 2] = [300, 2000];
/// Keys that are looked up at a time.
const BATCH: usize = 64;

/// What a writer has done and what it knows.
#[derive(Debug)]
pub struct Writer {
    model: String,
    histories: BTreeMap<u64, History>,
    random: Content,
    drawn: usize,
    versions: u64,
    /// Blocks that were acknowledged so far.
    pub acknowledged: u64,
}

/// How many of each verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks that came back.
    pub found: u64,
    /// See [`Verdict`].
    pub lost: u64,
    /// See [`Verdict`].
    pub stale: u64,
    /// See [`Verdict`].
    pub phantoms: u64,
    /// See [`Verdict`].
    pub wrong: u64,
    /// The first that was not right of each verdict, for people.
    pub examples: BTreeMap<Verdict, String>,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.found += other.found;
        self.lost += other.lost;
        self.stale += other.stale;
        self.phantoms += other.phantoms;
        self.wrong += other.wrong;
        for (verdict, example) in other.examples {
            self.examples.entry(verdict).or_insert(example);
        }
    }
}

impl Writer {
    /// Writer number `index` with so many keys.
    #[must_use]
    pub fn new(index: u64, keys: u64, seed: u64) -> Self {
        let histories = (0..keys).map(|number| (number, History::default())).collect();
        let random = Content::of(&[index.to_le_bytes(), seed.to_le_bytes()].concat());
        let model = format!("writer-{index}");
        Self { model, histories, random, drawn: 0, versions: 0, acknowledged: 0 }
    }

    /// Does one thing after the other until the daemon does not answer any more.
    ///
    /// # Errors
    /// If a look-up finds anything but the latest value, or nothing.
    pub fn run(&mut self, socket: &Path) -> anyhow::Result<()> {
        let client = daemon::client_of(socket, &self.model);
        loop {
            let goes_on = match self.below(1000) {
                0..5 => self.clear(&client),
                5..150 => self.look(&client)?,
                _ => self.put(&client),
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Looks every key up after a restart and judges what is found.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn check(&mut self, socket: &Path) -> anyhow::Result<Tally> {
        let client = daemon::client_of(socket, &self.model);
        let numbers: Vec<u64> = self.histories.keys().copied().collect();
        let mut tally = Tally::default();
        for numbers in numbers.chunks(BATCH) {
            let keys: Vec<Key> = numbers.iter().map(|number| keys::key(*number)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
            let now = SystemTime::now();
            let answer = client.fetch(self.namespace(), &keys, false, PATIENCE);
            if let Some(trouble) = answer.trouble {
                bail!("looking up after a restart: {trouble}");
            }
            for (number, item) in numbers.iter().zip(answer.items) {
                let history = self.histories.entry(*number).or_default();
                let missed = item.as_ref().err().copied();
                let found = item.map_or(Found::Nothing, |view| recognise(*number, &view, history));
                tally.found += u64::from(found != Found::Nothing);
                let verdict = history.judge(found, now);
                if verdict != Verdict::Right {
                    let latest = history.latest();
                    let example =
                        format!("{} key {number}: {found:?} {missed:?}; {latest:?}", self.model);
                    tally.examples.entry(verdict).or_insert(example);
                }
                match verdict {
                    Verdict::Right => {}
                    Verdict::Lost => tally.lost += 1,
                    Verdict::Stale => tally.stale += 1,
                    Verdict::Phantom => tally.phantoms += 1,
                    Verdict::Wrong => tally.wrong += 1,
                }
                history.settle(found);
            }
        }
        Ok(tally)
    }

    fn namespace(&self) -> Namespace<'_> {
        Namespace { model: &self.model, compat_key: "kill" }
    }

    fn clear(&mut self, client: &Client) -> bool {
        self.histories.values_mut().for_each(|history| history.ask(Deed::Clear));
        let cleared = client.clear(ClearScope::Namespace(self.namespace())).is_ok();
        if cleared {
            self.histories.values_mut().for_each(|history| history.acknowledge(None));
        }
        cleared
    }

    fn put(&mut self, client: &Client) -> bool {
        let number = self.below(self.histories.len() as u64);
        self.versions += 1;
        let version = self.versions;
        let class = if self.below(4) == 0 { Retention::Short } else { Retention::Long };
        let ttl_ms = (self.below(8) == 0).then(|| TTLS_MS[keys::below(self.draw(), TTLS_MS.len())]);
        let ttl = ttl_ms.map(Duration::from_millis);
        let bytes = value(number, version);
        let Some(Ok(ticket)) = client
            .reserve(&[bytes.len() as u64], class, PATIENCE)
            .map(|granted| granted.into_iter().next())
            .ok()
            .flatten()
        else {
            // Refused, or the daemon is gone: the next call tells.
            return client.stats().is_ok();
        };
        if ticket.write(0, &bytes).is_err() {
            return false;
        }
        let key = keys::key(number);
        let commit = Commit { ticket, key: &key, len_bytes: bytes.len() as u64, lineage: None };
        let put = Put { version, class, ends: None };
        self.histories.entry(number).or_default().ask(Deed::Put(put));
        let asked = SystemTime::now();
        let outcome = client.commit(self.namespace(), vec![commit], class, ttl);
        let history = self.histories.entry(number).or_default();
        match outcome.as_deref() {
            Ok([Ok(())]) => {
                let answered = SystemTime::now();
                history.acknowledge(
                    ttl.map(|ttl| Ends { earliest: asked + ttl, latest: answered + ttl }),
                );
                self.acknowledged += 1;
                true
            }
            // Not durable: it may be there now and gone after a restart. The next deed to this key ends the doubt.
            Ok([Err(kvd_client::Refusal::NotDurable)]) => true,
            Ok(_) => {
                history.refuse();
                true
            }
            Err(_) => false,
        }
    }

    /// Looks one key up while all is well.
    fn look(&mut self, client: &Client) -> anyhow::Result<bool> {
        let number = self.below(self.histories.len() as u64);
        let key = keys::key(number);
        let answer = client.fetch(self.namespace(), &[&key], false, PATIENCE);
        if answer.trouble.is_some() {
            return Ok(false);
        }
        let item = answer.items.into_iter().next().context("an answer without items")?;
        let history = self.histories.entry(number).or_default();
        let Ok(view) = item else { return Ok(true) };
        let found = recognise(number, &view, history);
        match history.judge(found, SystemTime::now()) {
            Verdict::Right => Ok(true),
            verdict => bail!("{} key {number}: {found:?} is {verdict:?}: {history:?}", self.model),
        }
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.random.word(self.drawn)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }
}

/// The bytes of a version of a key.
fn value(number: u64, version: u64) -> Vec<u8> {
    let content = content(number, version);
    let mut bytes = vec![0; len_of(content)];
    content.fill(&mut bytes);
    bytes
}

fn content(number: u64, version: u64) -> Content {
    Content::of(&[number.to_le_bytes(), version.to_le_bytes()].concat())
}

fn len_of(content: Content) -> usize {
    SIZES[keys::below(content.word(usize::MAX), SIZES.len())]
}

/// Which version of the key these bytes are.
fn recognise(number: u64, view: &View, history: &History) -> Found {
    let is_version = |version: &u64| {
        let content = content(number, *version);
        view.len() == len_of(content) && in_place::first_difference(view, content).is_none()
    };
    history.versions().find(is_version).map_or(Found::WrongBytes, Found::Version)
}
