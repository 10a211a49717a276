//! Numbers of messages: restarts, gaps, and what is kept until a gap is closed.

use std::collections::VecDeque;

/// Most messages that wait for a recovery; then the oldest go, and their gap is found afterwards.
const KEPT_MAX: usize = 65_536;
/// Most bytes of them.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// What the I/O is to ask the publisher for. The last need counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Every message from this one on.
    Replay {
        /// Its number.
        from: u64,
    },
    /// Everything that it holds.
    Snapshot,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It comes next.
    Next,
    /// It is known.
    Known,
    /// It is kept; ask for this, if anything.
    Kept(Option<Need>),
    /// The publisher began anew: forget, then take it as the first one.
    Restarted,
    /// Messages before it are lost for good, and it comes next.
    AfterLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    Replay,
    /// With the number in the header, once that came.
    Snapshot(Option<u64>),
}

/// Where a view is in the stream of its publisher.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// The last message that counts, from wherever it came.
    last: Option<u64>,
    /// The last one that came live. A replay may be ahead of it: what it brought is still to come a second time.
    seen: Option<u64>,
    recovery: Option<Recovery>,
    can_replay: bool,
    can_snapshot: bool,
    kept: VecDeque<(u64, Box<[u8]>)>,
    kept_bytes: usize,
}

impl Sequence {
    pub(super) const fn new(can_replay: bool, can_snapshot: bool) -> Self {
        Self {
            last: None,
            seen: None,
            recovery: None,
            can_replay,
            can_snapshot,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    pub(super) const fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    pub(super) const fn last(&self) -> Option<u64> {
        self.last
    }

    /// A live message. A publisher never sends a number twice: one that does not grow is of another life.
    pub(super) fn live(&mut self, seq: u64, payload: &[u8]) -> Arrival {
        if self.seen.is_some_and(|seen| seq <= seen) {
            return Arrival::Restarted;
        }
        self.seen = Some(seq);
        if self.recovery.is_some() {
            self.keep(seq, payload);
            return Arrival::Kept(None);
        }
        let Some(last) = self.last else {
            return self.first(seq, payload);
        };
        if seq <= last {
            return Arrival::Known;
        }
        if seq == last + 1 {
            self.last = Some(seq);
            return Arrival::Next;
        }
        if let Some(need) = self.recover(Some(last + 1)) {
            self.keep(seq, payload);
            return Arrival::Kept(Some(need));
        }
        self.last = Some(seq);
        Arrival::AfterLoss
    }

    /// Before the first message: what is there already, if it is to be had.
    pub(super) fn begin(&mut self) -> Option<Need> {
        // Only a snapshot has what an earlier life left.
        self.recover(if self.can_snapshot { None } else { Some(0) })
    }

    /// What was there before the first message is of use, and not to have it is no lie.
    fn first(&mut self, seq: u64, payload: &[u8]) -> Arrival {
        let is_whole = seq == 0 && !self.can_snapshot;
        let need = if is_whole { None } else { self.begin() };
        if need.is_some() {
            self.keep(seq, payload);
            return Arrival::Kept(need);
        }
        self.last = Some(seq);
        Arrival::Next
    }

    fn keep(&mut self, seq: u64, payload: &[u8]) {
        self.kept_bytes += payload.len();
        self.kept.push_back((seq, payload.into()));
        while self.kept.len() > KEPT_MAX || self.kept_bytes > KEPT_BYTES_MAX {
            let Some((_, oldest)) = self.kept.pop_front() else { return };
            self.kept_bytes -= oldest.len();
        }
    }

    /// Begins a recovery with what this publisher offers; nothing if it offers nothing.
    fn recover(&mut self, from: Option<u64>) -> Option<Need> {
        let replay = from.filter(|_| self.can_replay);
        let need = match replay {
            Some(from) => Need::Replay { from },
            None if self.can_snapshot => Need::Snapshot,
            None => return None,
        };
        self.recovery = Some(match need {
            Need::Replay { .. } => Recovery::Replay,
            Need::Snapshot => Recovery::Snapshot(None),
        });
        Some(need)
    }

    /// Forgets everything; the publisher began anew.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.can_replay, self.can_snapshot);
    }

    /// Begins with a snapshot, whatever the numbers say; nothing if there is none to be had.
    pub(super) fn resynchronise(&mut self) -> Option<Need> {
        self.recover(None)
    }

    /// What came live and is older than a message of a replay that begins late: to be taken before it.
    pub(super) fn next_kept_before(&mut self, replayed: u64) -> Option<(Box<[u8]>, Arrival)> {
        let (seq, _) = self.kept.front().filter(|(seq, _)| *seq < replayed)?;
        let arrival = match self.last {
            Some(last) if *seq <= last => Arrival::Known,
            Some(last) if *seq > last + 1 && self.can_snapshot => return None,
            Some(last) if *seq > last + 1 => Arrival::AfterLoss,
            Some(_) | None => Arrival::Next,
        };
        let (seq, payload) = self.kept.pop_front()?;
        self.kept_bytes -= payload.len();
        self.last = self.last.max(Some(seq));
        Some((payload, arrival))
    }

    /// A message of a replay. Nothing if nobody waits for it.
    pub(super) fn replayed(&mut self, seq: u64) -> Option<Arrival> {
        if self.recovery != Some(Recovery::Replay) {
            return None;
        }
        let is_after_loss = match self.last {
            Some(last) if seq <= last => return Some(Arrival::Known),
            Some(last) => seq > last + 1,
            None => false,
        };
        if is_after_loss && self.can_snapshot {
            return Some(Arrival::Kept(self.replay_failed()));
        }
        self.last = Some(seq);
        Some(if is_after_loss { Arrival::AfterLoss } else { Arrival::Next })
    }

    /// The replay did not bring what was asked for. What is left to ask for; nothing: go on with what is kept.
    pub(super) fn replay_failed(&mut self) -> Option<Need> {
        if self.recovery != Some(Recovery::Replay) {
            return None;
        }
        self.recovery = None;
        self.resynchronise()
    }

    /// The header of a snapshot came. False if nobody waits for one.
    pub(super) fn snapshot_began(&mut self, seq: u64) -> bool {
        let is_awaited = self.awaits_snapshot();
        if is_awaited {
            self.recovery = Some(Recovery::Snapshot(Some(seq)));
        }
        is_awaited
    }

    /// Whether a replay is awaited, or under way.
    pub(super) fn awaits_replay(&self) -> bool {
        self.recovery == Some(Recovery::Replay)
    }

    /// Whether a snapshot is awaited, or being read.
    pub(super) const fn awaits_snapshot(&self) -> bool {
        matches!(self.recovery, Some(Recovery::Snapshot(_)))
    }

    /// Whether rows of a snapshot are awaited.
    pub(super) const fn is_in_snapshot(&self) -> bool {
        matches!(self.recovery, Some(Recovery::Snapshot(Some(_))))
    }

    /// The snapshot is whole, or nobody waits for it.
    pub(super) fn snapshot_ended(&mut self) -> bool {
        let Some(Recovery::Snapshot(Some(seq))) = self.recovery else {
            return false;
        };
        self.recovery = None;
        self.last = Some(seq);
        true
    }

    /// The snapshot broke off: the same need again, if there is one.
    pub(super) fn snapshot_failed(&mut self) -> Option<Need> {
        matches!(self.recovery, Some(Recovery::Snapshot(_))).then(|| {
            self.recovery = Some(Recovery::Snapshot(None));
            Need::Snapshot
        })
    }

    /// Ends a replay; afterwards take [`Sequence::next_kept`] until there is nothing.
    pub(super) fn replay_ended(&mut self) -> bool {
        let was_awaited = self.recovery == Some(Recovery::Replay);
        if was_awaited {
            self.recovery = None;
        }
        was_awaited
    }

    /// The next message that was kept, unless a recovery goes on.
    pub(super) fn next_kept(&mut self) -> Option<(Box<[u8]>, Arrival)> {
        if self.recovery.is_some() {
            return None;
        }
        let (seq, payload) = self.kept.pop_front()?;
        self.kept_bytes -= payload.len();
        let arrival = match self.last {
            Some(last) if seq <= last => Arrival::Known,
            Some(last) if seq > last + 1 => {
                // A replay that ended before this one is not asked for again.
                if let Some(need) = self.resynchronise() {
                    self.kept_bytes += payload.len();
                    self.kept.push_front((seq, payload));
                    return Some((Box::default(), Arrival::Kept(Some(need))));
                }
                self.last = Some(seq);
                Arrival::AfterLoss
            }
            Some(_) | None => {
                self.last = Some(seq);
                Arrival::Next
            }
        };
        Some((payload, arrival))
    }
}
