//! From changes to numbered messages, and the messages that are kept for who missed some.

use std::collections::VecDeque;
use std::sync::Arc;

use kvd_proto::events::{BatchWriter, Cleared, Digest, Event, Namespace, Owner, Row, Scope};
use kvd_store::{TierBlock, TierChange, TierChanges};

/// Most events of one message.
const BATCH_EVENTS_MAX: u32 = 256;
/// A message ends with the event by which it gets longer than this; lineages are up to 64 KiB each.
const BATCH_BYTES: usize = 256 << 10;
/// What an event has beside key, lineage and names.
const EVENT_BYTES: usize = 300;
/// Most messages that are kept for replays.
const KEPT_MAX: usize = 10_000;
/// Most bytes of them.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// One message, to be sent with its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub seq: u64,
    /// Its events.
    pub payload: Arc<[u8]>,
}

/// The stream of one life: what has which number.
#[derive(Debug)]
pub struct Stream {
    host_id: String,
    epoch: u64,
    /// Of the last message; the first one is 1, so that a snapshot from before it can say 0.
    last: u64,
    kept: VecDeque<Message>,
    kept_bytes: usize,
}

/// Events that become one message.
struct Batch<'b> {
    writer: BatchWriter<'b>,
    bytes: usize,
}

impl Stream {
    /// A stream without messages.
    #[must_use]
    pub fn new(host_id: &str, epoch: u64) -> Self {
        Self { host_id: host_id.to_owned(), epoch, last: 0, kept: VecDeque::new(), kept_bytes: 0 }
    }

    /// Number of the last message.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The life that the numbers belong to.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes messages of changes, in their order; the number of events.
    pub fn make(
        &mut self,
        changes: &TierChanges,
        timestamp: f64,
        mut each: impl FnMut(&Message),
    ) -> u64 {
        let mut changes = changes.iter().peekable();
        let mut events = 0;
        while changes.peek().is_some() {
            let host_id = std::mem::take(&mut self.host_id);
            let owner = Owner { id: Some(&host_id), epoch: Some(self.epoch) };
            let mut payload = Vec::new();
            let mut batch = Batch { writer: BatchWriter::begin(&mut payload, timestamp), bytes: 0 };
            let mut is_untold = false;
            while !is_untold && !batch.is_full() {
                let Some(change) = changes.next() else { break };
                is_untold = change == TierChange::Untold;
                batch.push(change, owner);
            }
            let count = batch.writer.len();
            batch.writer.finish();
            events += u64::from(count);
            self.host_id = host_id;
            if count > 0 {
                each(self.keep(payload));
            }
            if is_untold {
                each(self.leave_out(timestamp));
            }
        }
        events
    }

    /// Leaves a number out: whoever reads begins again. What was kept is of no use to anybody after that. The message
    /// that shows the gap, which says nothing.
    pub fn leave_out(&mut self, timestamp: f64) -> &Message {
        self.last += 1;
        self.kept.clear();
        self.kept_bytes = 0;
        self.sign_of_life(timestamp)
    }

    /// A message that says nothing but that nothing is missing.
    pub fn sign_of_life(&mut self, timestamp: f64) -> &Message {
        let mut payload = Vec::new();
        BatchWriter::begin(&mut payload, timestamp).finish();
        self.keep(payload)
    }

    fn keep(&mut self, payload: Vec<u8>) -> &Message {
        self.last += 1;
        self.kept_bytes += payload.len();
        self.kept.push_back(Message { seq: self.last, payload: payload.into() });
        while self.kept.len() > KEPT_MAX
            || (self.kept_bytes > KEPT_BYTES_MAX && self.kept.len() > 1)
        {
            let oldest = self.kept.pop_front();
            self.kept_bytes -= oldest.map_or(0, |oldest| oldest.payload.len());
        }
        &self.kept[self.kept.len() - 1]
    }

    /// The message with this number, if it is kept.
    #[must_use]
    pub fn kept(&self, seq: u64) -> Option<&Message> {
        let first = self.kept.front()?.seq;
        self.kept.get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }
}

impl Batch<'_> {
    const fn is_full(&self) -> bool {
        self.writer.len() >= BATCH_EVENTS_MAX || self.bytes >= BATCH_BYTES
    }

    fn push(&mut self, change: TierChange<'_>, owner: Owner<'_>) {
        match change {
            TierChange::Stored(block) => {
                self.count(&block);
                let row = Row::new(block.key, block.lineage);
                let stored = row.stored(block.len_bytes, block.tier, owner, named(block.namespace));
                self.writer.push(&Event::Stored(stored));
            }
            TierChange::Removed(block, reason) => {
                self.count(&block);
                let row = Row::new(block.key, block.lineage);
                let namespace = named(block.namespace);
                let removed = row.removed(block.len_bytes, block.tier, owner, namespace, reason);
                self.writer.push(&Event::Removed(removed));
            }
            TierChange::Cleared(tier) => {
                let (scope, tier) = (Scope::Tier, Some(tier));
                let namespace = Namespace::default();
                self.writer.push(&Event::Cleared(Cleared { scope, tier, owner, namespace }));
            }
            TierChange::Digest(namespace, tier, tally) => {
                self.bytes += EVENT_BYTES + namespace.model.len() + namespace.compat_key.len();
                let (namespace, tier) = (named(namespace), Some(tier));
                self.writer.push(&Event::Digest(Digest { owner, namespace, tier, tally }));
            }
            TierChange::Untold => {}
        }
    }

    fn count(&mut self, block: &TierBlock<'_>) {
        let names = block.namespace.model.len() + block.namespace.compat_key.len();
        let lineage = block.lineage.map_or(0, <[u8]>::len);
        self.bytes += EVENT_BYTES + names + block.key.len() + lineage;
    }
}

/// A namespace in the words of events.
pub(super) fn named(namespace: kvd_proto::block_key::Namespace<'_>) -> Namespace<'_> {
    let kvd_proto::block_key::Namespace { model, compat_key } = namespace;
    Namespace { model: Some(model), compat_key: Some(compat_key), engine: None }
}

#[cfg(test)]
mod tests {
    use kvd_proto::block_key::Namespace;
    use kvd_proto::events::{CacheTier, Reason};

    use super::*;

    fn block(key: &[u8]) -> TierBlock<'_> {
        let namespace = Namespace { model: "m", compat_key: "c" };
        TierBlock { tier: CacheTier::L2, namespace, key, lineage: None, len_bytes: 7 }
    }

    fn stored(count: usize) -> TierChanges {
        let mut changes = TierChanges::default();
        for number in 0..count {
            changes.push(TierChange::Stored(block(&number.to_be_bytes())));
        }
        changes
    }

    fn made(stream: &mut Stream, changes: &TierChanges) -> Vec<(u64, u32)> {
        let mut messages = Vec::new();
        stream.make(changes, 1.5, |message| {
            let batch = kvd_proto::events::Batch::decode(&message.payload).unwrap();
            messages.push((message.seq, batch.len()));
        });
        messages
    }

    #[test]
    fn messages_are_numbered_from_1_and_bounded() {
        let mut stream = Stream::new("h", 9);
        assert_eq!(made(&mut stream, &stored(600)), [(1, 256), (2, 256), (3, 88)]);
        assert_eq!(made(&mut stream, &TierChanges::default()), []);
        let mut long = TierChanges::default();
        let lineage = vec![0; 64 << 10];
        for _ in 0..9 {
            long.push(TierChange::Stored(TierBlock { lineage: Some(&lineage), ..block(b"k") }));
        }
        assert_eq!(made(&mut stream, &long), [(4, 4), (5, 4), (6, 1)]);
    }

    #[test]
    fn a_gap_is_seen_at_once_and_nothing_before_it_is_replayed() {
        let mut stream = Stream::new("h", 9);
        let mut changes = stored(1);
        changes.push(TierChange::Untold);
        changes.append(&stored(2));
        assert_eq!(made(&mut stream, &changes), [(1, 1), (3, 0), (4, 2)]);
        assert_eq!(stream.kept(1), None);
        assert_eq!(stream.kept(2), None);
        assert_eq!(stream.kept(3).map(|message| message.seq), Some(3));
        assert_eq!(stream.kept(5), None);
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes_and_by_messages() {
        let mut stream = Stream::new("h", 9);
        for _ in 0..KEPT_MAX + 10 {
            stream.sign_of_life(0.0);
        }
        assert_eq!((stream.kept(10), stream.kept.len()), (None, KEPT_MAX));
        for _ in 0..300 {
            stream.keep(vec![0; 1 << 20]);
            assert!(stream.kept_bytes <= KEPT_BYTES_MAX);
        }
        let bytes: usize = stream.kept.iter().map(|message| message.payload.len()).sum();
        assert_eq!(stream.kept_bytes, bytes);
    }

    #[test]
    fn every_change_has_its_golden_bytes() {
        let mut changes = stored(1);
        changes.push(TierChange::Removed(block(b"key"), Some(Reason::Demote)));
        changes.push(TierChange::Cleared(CacheTier::L3));
        let tally = kvd_proto::events::Tally { count: 2, xor: 3 };
        let namespace = Namespace { model: "m", compat_key: "c" };
        changes.push(TierChange::Digest(namespace, CacheTier::L2, tally));
        let mut text = String::new();
        Stream::new("host", 9).make(&changes, 1.5, |message| {
            text = message.payload.iter().map(|byte| format!("{byte:02x}")).collect();
        });
        assert_eq!(text, include_str!("golden.hex").trim_end());
    }
}
