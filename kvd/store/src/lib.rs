//! Every decision of the cache, without clock, file, thread or socket.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]

mod batch;
mod check;
mod config;
mod disk;
mod effects;
mod events;
mod evict;
mod evidence;
mod holding;
mod index;
mod input;
mod inspect;
mod keys;
mod ledger;
mod lookup;
mod namespaces;
mod ops;
mod promises;
mod removal;
mod rights;
mod room;
mod rows;
mod sessions;
mod slab;
mod space;
mod stats;
mod store;
pub mod tablespace;
mod time;

pub use config::{SessionLimits, StoreConfig};
pub use disk::{
    DEVICES_MAX, DeviceFault, DeviceHealth, DeviceId, DeviceInfo, DiskConfig, DiskDone, DiskStats,
    DiskTotals, DiskWork, Durability, EntryCursor, EntryInfo, Half, LoadFault, LoadId, SpillFault,
    SpillId, Verdict, WHOLE_PAGES_FROM, WaitId, WriteFault,
};
pub use effects::{Effects, Found, Granted, HeaderWrite, Held, Hit, Located, Outcome};
pub use events::{TierBlock, TierChange, TierChanges, TierCursor, TierDigest};
pub use input::{
    ClearCursor, ClearScope, Commit, CommitRules, Hold, Ids, Input, Peer, ProcessName, Writer,
};
pub use inspect::{RowCursor, RowInfo, SessionInfo, Why};
pub use keys::Keys;
pub use ledger::{
    Adopted, AdoptedSession, DroppedRows, Holder, LEDGER_HEADER_BYTES, LEDGER_VERSION, LedgerFault,
    LedgerHeader, LedgerImage, LedgerLayout, LedgerWrite, LedgerWrites,
};
pub use stats::{SpaceStats, Stats, Totals};
pub use store::Store;
pub use time::Timestamp;
