//! What crosses the boundary by value or by pointer: handles and structs in C's layout. Plain numbers and pointers only,
//! so that no bytes a caller can write make an invalid value.

use std::ffi::{c_char, c_void};

use crate::codes::{KVD_SERVER_ID_BYTES, KVD_STAT_NAME_BYTES, Miss, Refusal};

/// A client: a connection to the daemon that is made when it is needed and made again when it is lost. From kvd_attach
/// until kvd_detach. 0 is never one.
pub type Client = u64;

/// The right to read one block in place. From kvd_fetch until it is released. 0 is never one.
pub type View = u64;

/// The right to fill room in the arena. From kvd_reserve until kvd_commit or kvd_cancel. 0 is never one.
pub type Ticket = u64;

/// Some bytes of the caller.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bytes {
    /// Where they begin. May be null if len is 0.
    pub data: *const c_void,
    /// How many there are.
    pub len: usize,
}

/// What must agree besides the key for bytes to be usable. Both texts are UTF-8, end with a 0, have at most 1024 bytes
/// and are never null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Namespace {
    /// Name or path of the model.
    pub model: *const c_char,
    /// Weights, layout, data type, rank: whatever else the bytes depend on.
    pub compat_key: *const c_char,
}

/// How to attach. Zero all of it, then set what is to differ from the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// Path of the daemon's socket. Null: that of the environment's INFERA_KVD_SOCKET, else /var/run/infera-kvd.sock.
    pub socket: *const c_char,
    /// The name under which operators see this client. Null: pid- and the process id.
    pub client_id: *const c_char,
    /// Upper bound in milliseconds of every call that is not given one of its own. 0: 1000.
    pub deadline_ms: u32,
    /// A greeting that has not ended after so many milliseconds is given up and begun anew. 0: 5000.
    pub connect_deadline_ms: u32,
}

/// What a connection is to, and what it may hold.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Connection {
    /// The daemon's incarnation: tickets of another one mean nothing.
    pub epoch: u64,
    /// Number of the connection within the incarnation.
    pub session: u64,
    /// Size of the arena in bytes; 0 if none is shared.
    pub arena_bytes: u64,
    /// Most items of one request; calls with more are split by the library.
    pub keys_max: u64,
    /// Most blocks under unreleased views.
    pub leases_max: u64,
    /// Most tickets at once.
    pub tickets_max: u64,
    /// Most bytes under views and tickets at once.
    pub in_flight_bytes_max: u64,
    /// Longest block in bytes.
    pub value_bytes_max: u64,
    /// Name of the incarnation, ending with a 0.
    pub server_id: [c_char; KVD_SERVER_ID_BYTES],
}

/// What kvd_locate says of one key.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Located {
    /// Length of the block in bytes; 0 for a miss.
    pub len: u64,
    /// How long loading it should take, in microseconds, by the daemon's estimate.
    pub load_us: u32,
    /// One of enum kvd_miss; KVD_MISS_NONE if the block is there.
    pub miss: u8,
    /// The fastest tier that has it: one of enum kvd_tier.
    pub tier: u8,
}

/// What kvd_fetch says of one key.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fetched {
    /// The right to read; 0 for a miss.
    pub view: View,
    /// The block, in place. To be read until the view is released, and never to be written. Null for a miss.
    pub data: *const c_void,
    /// Length of the block in bytes. Blocks may be empty.
    pub len: u64,
    /// One of enum kvd_miss; KVD_MISS_NONE if the block is there.
    pub miss: u8,
}

/// What kvd_reserve says of one length.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Reserved {
    /// The right to write; 0 if it was refused.
    pub ticket: Ticket,
    /// The room, in place. To be written until the ticket is committed or cancelled. Null if it was refused.
    pub data: *mut c_void,
    /// Length of the room in bytes.
    pub len: u64,
    /// One of enum kvd_refusal; KVD_REFUSAL_NONE if it was granted.
    pub refusal: u8,
}

/// A filled ticket and what it is to be.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CommitItem {
    /// The room that was filled.
    pub ticket: Ticket,
    /// The key under which it is stored.
    pub key: Bytes,
    /// How many bytes were written, from the beginning of the room.
    pub len: u64,
    /// What the bytes cover, for whoever routes requests by it. May be null.
    pub lineage: *const Lineage,
}

/// Which blocks of the engine one stored block stands for. The daemon passes it on and decides nothing by it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lineage {
    /// The engine's block hashes, first block first. May be null if the count is 0.
    pub engine_hashes: *const Bytes,
    /// How many engine hashes there are.
    pub engine_hash_count: usize,
    /// The router's hashes of the same blocks. May be null if the count is 0.
    pub router_hashes: *const u64,
    /// How many router hashes there are.
    pub router_hash_count: usize,
    /// The engine's hash of the block before the first. Null data: there is none.
    pub parent: Bytes,
    /// Adapter that the tokens were computed with: UTF-8, ending with a 0. May be null.
    pub lora: *const c_char,
    /// Salt that keeps equal prompts apart: UTF-8, ending with a 0. May be null.
    pub salt: *const c_char,
    /// Tokens in one engine block.
    pub tokens_per_block: u32,
}

/// One of the daemon's figures.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stat {
    /// Its value.
    pub value: u64,
    /// Its name, ending with a 0; a longer one is cut.
    pub name: [c_char; KVD_STAT_NAME_BYTES],
}

impl Located {
    pub(crate) fn miss(code: u8) -> Self {
        Self { len: 0, load_us: 0, miss: code, tier: 0 }
    }
}

impl Fetched {
    /// What stands in an array that was not answered.
    pub(crate) const NOT_ASKED: Self = Self::miss(Miss::NotAsked as u8);

    pub(crate) const fn miss(code: u8) -> Self {
        Self { view: 0, data: std::ptr::null(), len: 0, miss: code }
    }
}

impl Reserved {
    /// What stands in an array that was not answered.
    pub(crate) const NOT_ASKED: Self = Self::refused(Refusal::NotAsked as u8);

    pub(crate) const fn refused(code: u8) -> Self {
        Self { ticket: 0, data: std::ptr::null_mut(), len: 0, refusal: code }
    }
}

/// `text` as C keeps it in a field: cut at a character if it is too long, filled up with zeros.
pub(crate) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    let room = N.saturating_sub(1);
    let cut = text.floor_char_boundary(room);
    for (to, byte) in field.iter_mut().zip(text[..cut].bytes()) {
        *to = c_char::from_le_bytes([byte]);
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_always_ends_with_a_zero_and_holds_whole_characters() {
        assert_eq!(field::<4>("ab"), [97, 98, 0, 0]);
        assert_eq!(field::<4>("abcd"), [97, 98, 99, 0]);
        assert_eq!(field::<4>("abä"), [97, 98, 0, 0]);
        assert_eq!(field::<4>(""), [0; 4]);
    }
}
