//! The messages of a handover as bytes. `docs/handover.md` has the tables. Pure: no socket, no clock.
//!
//! Whoever receives one believes nothing of it: version, length and checksum are looked at before anything else, and each
//! field is read within the bytes that came.

use kvd_proto::ids::SessionId;
use kvd_shm::checksum::of_block;

/// Version of everything here. Two daemons of different versions do not hand over.
pub const VERSION: u16 = 1;
/// Length of what precedes every body.
pub const HEAD_BYTES: usize = 24;
/// Longest body: a session whose client has sent ahead, or reads slowly.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Most descriptors with one message.
pub const DESCRIPTORS_MAX: usize = 2;

const MAGIC: [u8; 4] = *b"KVDH";
/// Stands for a client that has not said its name.
const NO_NAME: u16 = u16::MAX;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteFault {
    /// Something else speaks.
    #[error("it speaks another language")]
    Foreign,
    /// Another build, of another version of this protocol.
    #[error("it speaks version {found} of the handover, this daemon {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// Longer than any message, or with more descriptors.
    #[error("a message is larger than any can be")]
    TooLarge,
    /// It was changed on its way, or made wrong.
    #[error("a message is damaged")]
    Damaged,
}

/// What precedes a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Which message.
    pub kind: u16,
    /// Bytes that follow.
    pub body_bytes: usize,
    /// Descriptors that came with it.
    pub descriptors: usize,
    checksum: u64,
}

/// A socket that clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Engines.
    Engines,
    /// The admin interface.
    Admin,
    /// Successors.
    Takeover,
    /// Health and metrics by TCP. Nothing is in the file system of it.
    Metrics,
}

/// Everything that is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The successor wants to take over.
    Ask(Ask),
    /// One of the two does not: why, in words. The predecessor goes on.
    Refusal(String),
    /// What is handed over. With it come the arena and the ledger; its sockets, sessions and watches follow.
    Estate(Estate),
    /// One socket. With it come the socket and, but for [`Role::Metrics`], the lock of its path.
    Socket {
        /// Whose.
        role: Role,
        /// What stands under its path now, if that is ours.
        inode: u64,
    },
    /// One connection. With it comes its socket.
    Session(SessionNote),
    /// With it comes a descriptor of the process behind a session, open or closed.
    Watch(SessionId),
    /// The successor could begin at once.
    Ready,
    /// The last word: from now on everything is the successor's.
    Yours,
    /// The service manager knows the successor.
    Introduced,
}

/// What the successor says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Version of the ledger that it reads and writes.
    pub ledger_version: u32,
    /// Bytes of the arena that it is configured for.
    pub arena_bytes: u64,
    /// Connections that it serves at most.
    pub sessions_max: u32,
    /// Its build, for the log.
    pub build: String,
    /// The socket that it is to serve.
    pub socket: Vec<u8>,
}

/// What is handed over, in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estate {
    /// Names the life that goes on: rights have it in their names.
    pub epoch: u64,
    /// No session had this id or a larger one.
    pub next_session: u64,
    /// [`Note::Socket`]s that follow.
    pub sockets: u32,
    /// [`Note::Session`]s that follow them.
    pub sessions: u32,
    /// [`Note::Watch`]es that follow those.
    pub watches: u32,
    /// Connections that could not be handed over and were closed.
    pub left_behind: u32,
}

/// A connection between two frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNote {
    /// Its id.
    pub id: SessionId,
    /// The store knows it: the peer has said something.
    pub opened: bool,
    /// The peer speaks protocol 2.
    pub modern: bool,
    /// The peer has the arena.
    pub has_arena: bool,
    /// The version that its `hello` led to.
    pub protocol: u8,
    /// Frames handled.
    pub requests: u64,
    /// Hits so far.
    pub hits: u64,
    /// Milliseconds since it connected.
    pub age_ms: u64,
    /// How the peer calls itself.
    pub client_id: Option<String>,
    /// Received and not handled.
    pub inbox: Vec<u8>,
    /// Answered and not sent.
    pub outbox: Vec<u8>,
}

impl Head {
    /// Reads a head.
    ///
    /// # Errors
    /// [`NoteFault`]: nothing that follows can be believed.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Self, NoteFault> {
        let mut reader = Reader(bytes);
        if reader.take(4)? != MAGIC {
            return Err(NoteFault::Foreign);
        }
        let found = reader.u16()?;
        if found != VERSION {
            return Err(NoteFault::Version { found });
        }
        let kind = reader.u16()?;
        let (body_bytes, descriptors) = (reader.u32()? as usize, reader.u32()? as usize);
        if body_bytes > BODY_BYTES_MAX || descriptors > DESCRIPTORS_MAX {
            return Err(NoteFault::TooLarge);
        }
        Ok(Self { kind, body_bytes, descriptors, checksum: reader.u64()? })
    }
}

impl Note {
    /// Head and body.
    #[must_use]
    pub fn encode(&self, descriptors: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.kind().to_le_bytes());
        bytes.extend([0; 16]);
        self.put_body(&mut bytes);
        let body_bytes = length(bytes.len() - HEAD_BYTES);
        bytes[8..12].copy_from_slice(&body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&length(descriptors).to_le_bytes());
        let checksum = of_block(&bytes[..16], &bytes[HEAD_BYTES..]);
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The message of which `head` was read as `head_bytes`.
    ///
    /// # Errors
    /// [`NoteFault`].
    pub fn decode(
        head: Head,
        head_bytes: &[u8; HEAD_BYTES],
        body: &[u8],
    ) -> Result<Self, NoteFault> {
        if of_block(&head_bytes[..16], body) != head.checksum {
            return Err(NoteFault::Damaged);
        }
        let mut reader = Reader(body);
        let note = match head.kind {
            1 => Self::Ask(Ask {
                ledger_version: reader.u32()?,
                arena_bytes: reader.u64()?,
                sessions_max: reader.u32()?,
                build: reader.text()?,
                socket: reader.blob()?,
            }),
            2 => Self::Refusal(reader.text()?),
            3 => Self::Estate(Estate {
                epoch: reader.u64()?,
                next_session: reader.u64()?,
                sockets: reader.u32()?,
                sessions: reader.u32()?,
                watches: reader.u32()?,
                left_behind: reader.u32()?,
            }),
            4 => Self::Socket { role: role_of(reader.u8()?)?, inode: reader.u64()? },
            5 => Self::Session(reader.session()?),
            6 => Self::Watch(SessionId(reader.u64()?)),
            7 => Self::Ready,
            8 => Self::Yours,
            9 => Self::Introduced,
            _ => return Err(NoteFault::Damaged),
        };
        if reader.0.is_empty() { Ok(note) } else { Err(NoteFault::Damaged) }
    }

    fn kind(&self) -> u16 {
        match self {
            Self::Ask(_) => 1,
            Self::Refusal(_) => 2,
            Self::Estate(_) => 3,
            Self::Socket { .. } => 4,
            Self::Session(_) => 5,
            Self::Watch(_) => 6,
            Self::Ready => 7,
            Self::Yours => 8,
            Self::Introduced => 9,
        }
    }

    fn put_body(&self, to: &mut Vec<u8>) {
        match self {
            Self::Ask(ask) => {
                to.extend(ask.ledger_version.to_le_bytes());
                to.extend(ask.arena_bytes.to_le_bytes());
                to.extend(ask.sessions_max.to_le_bytes());
                put_blob(to, ask.build.as_bytes());
                put_blob(to, &ask.socket);
            }
            Self::Refusal(words) => put_blob(to, words.as_bytes()),
            Self::Estate(estate) => {
                to.extend(estate.epoch.to_le_bytes());
                to.extend(estate.next_session.to_le_bytes());
                to.extend(estate.sockets.to_le_bytes());
                to.extend(estate.sessions.to_le_bytes());
                to.extend(estate.watches.to_le_bytes());
                to.extend(estate.left_behind.to_le_bytes());
            }
            Self::Socket { role, inode } => {
                to.push(*role as u8);
                to.extend(inode.to_le_bytes());
            }
            Self::Session(session) => session.put(to),
            Self::Watch(session) => to.extend(session.0.to_le_bytes()),
            Self::Ready | Self::Yours | Self::Introduced => {}
        }
    }
}

impl SessionNote {
    /// Whether a message has room for it.
    #[must_use]
    pub fn fits(inbox_bytes: usize, outbox_bytes: usize) -> bool {
        // The name and the fixed fields are far below this.
        const REST: usize = 4096;
        inbox_bytes.saturating_add(outbox_bytes) <= BODY_BYTES_MAX - REST
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.id.0.to_le_bytes());
        let flags = [self.opened, self.modern, self.has_arena];
        to.push((0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum());
        to.push(self.protocol);
        to.extend(self.requests.to_le_bytes());
        to.extend(self.hits.to_le_bytes());
        to.extend(self.age_ms.to_le_bytes());
        match &self.client_id {
            None => to.extend(NO_NAME.to_le_bytes()),
            Some(name) => put_blob(to, name.as_bytes()),
        }
        for bytes in [&self.inbox, &self.outbox] {
            to.extend(length(bytes.len()).to_le_bytes());
            to.extend(bytes);
        }
    }
}

fn role_of(byte: u8) -> Result<Role, NoteFault> {
    let all = [Role::Engines, Role::Admin, Role::Takeover, Role::Metrics];
    all.into_iter().find(|role| *role as u8 == byte).ok_or(NoteFault::Damaged)
}

/// No body is longer than [`BODY_BYTES_MAX`]: a caller sees to that.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A short text: what is beyond its limit is left out.
fn put_blob(to: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX).min(NO_NAME - 1);
    to.extend(len.to_le_bytes());
    to.extend(&bytes[..len.into()]);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], NoteFault> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(NoteFault::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NoteFault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(NoteFault::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, NoteFault> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, NoteFault> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, NoteFault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, NoteFault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn blob(&mut self) -> Result<Vec<u8>, NoteFault> {
        let len = self.u16()?;
        Ok(self.take(len.into())?.to_vec())
    }

    fn text(&mut self) -> Result<String, NoteFault> {
        String::from_utf8(self.blob()?).map_err(|_not_a_text| NoteFault::Damaged)
    }

    fn session(&mut self) -> Result<SessionNote, NoteFault> {
        let id = SessionId(self.u64()?);
        let flags = self.u8()?;
        if flags >= 1 << 3 {
            return Err(NoteFault::Damaged);
        }
        let flag = |bit: u8| flags & (1 << bit) != 0;
        let (opened, modern, has_arena) = (flag(0), flag(1), flag(2));
        let protocol = self.u8()?;
        let (requests, hits, age_ms) = (self.u64()?, self.u64()?, self.u64()?);
        let mut ahead = Reader(self.0);
        let client_id = if ahead.u16()? == NO_NAME {
            *self = ahead;
            None
        } else {
            Some(self.text()?)
        };
        let mut bytes = || {
            let len = self.u32()? as usize;
            Ok(self.take(len)?.to_vec())
        };
        let (inbox, outbox) = (bytes()?, bytes()?);
        Ok(SessionNote {
            id,
            opened,
            modern,
            has_arena,
            protocol,
            requests,
            hits,
            age_ms,
            client_id,
            inbox,
            outbox,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionNote {
        SessionNote {
            id: SessionId(7),
            opened: true,
            modern: false,
            has_arena: true,
            protocol: 1,
            requests: 3,
            hits: 2,
            age_ms: 1000,
            client_id: Some("engine".into()),
            inbox: vec![0, 0, 0, 9, 1],
            outbox: vec![5, 6],
        }
    }

    fn all() -> Vec<Note> {
        vec![
            Note::Ask(Ask {
                ledger_version: 1,
                arena_bytes: 1 << 33,
                sessions_max: 1024,
                build: "0.1.0".into(),
                socket: b"/run/kvd.sock".to_vec(),
            }),
            Note::Refusal("it drains".into()),
            Note::Estate(Estate {
                epoch: 1 << 50,
                next_session: 9,
                sockets: 3,
                sessions: 2,
                watches: 1,
                left_behind: 0,
            }),
            Note::Socket { role: Role::Takeover, inode: 77 },
            Note::Session(session()),
            Note::Session(SessionNote { client_id: None, opened: false, ..session() }),
            Note::Watch(SessionId(7)),
            Note::Ready,
            Note::Yours,
            Note::Introduced,
        ]
    }

    fn decoded(bytes: &[u8]) -> Result<Note, NoteFault> {
        let (head_bytes, body) = bytes.split_first_chunk().ok_or(NoteFault::Damaged)?;
        let head = Head::decode(head_bytes)?;
        let body = body.get(..head.body_bytes).ok_or(NoteFault::Damaged)?;
        Note::decode(head, head_bytes, body)
    }

    #[test]
    fn every_message_comes_out_as_it_went_in() {
        for note in all() {
            assert_eq!(decoded(&note.encode(1)), Ok(note.clone()), "{note:?}");
        }
    }

    /// What another build of this version reads and writes.
    #[test]
    fn the_bytes_are_those_that_are_written_down() {
        let of = |note: &Note| {
            note.encode(1).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let written: Vec<String> = all().iter().map(of).collect();
        assert_eq!(written.join("\n"), include_str!("golden.hex").trim());
    }

    #[test]
    fn no_flipped_bit_and_no_missing_byte_gets_through() {
        for note in all() {
            let good = note.encode(0);
            for at in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[at / 8] ^= 1 << (at % 8);
                assert!(decoded(&bad).is_err(), "bit {at} of {note:?}");
            }
            for len in 0..good.len() {
                assert!(decoded(&good[..len]).is_err(), "{len} bytes of {note:?}");
            }
        }
    }

    /// Right sums over wrong contents: each field stays within the bytes that came.
    #[test]
    fn what_is_summed_right_and_made_wrong_is_refused() {
        for kind in 0..12_u16 {
            for len in 0..80 {
                for fill in [0, 1, 0x7F, 0xFF] {
                    let mut bytes = Note::Ready.encode(0);
                    bytes[6..8].copy_from_slice(&kind.to_le_bytes());
                    bytes[8..12].copy_from_slice(&length(len).to_le_bytes());
                    bytes.resize(HEAD_BYTES + len, fill);
                    let checksum = of_block(&bytes[..16], &bytes[HEAD_BYTES..]);
                    bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
                    if let Ok(note) = decoded(&bytes) {
                        assert_eq!(note.encode(0), bytes, "{note:?} says all that came");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_too_large_is_refused_before_anything_is_read() {
        let mut bytes = Note::Ready.encode(0);
        bytes[8..12].copy_from_slice(&length(BODY_BYTES_MAX + 1).to_le_bytes());
        assert_eq!(decoded(&bytes), Err(NoteFault::TooLarge));
        bytes[4..6].copy_from_slice(&2_u16.to_le_bytes());
        assert_eq!(decoded(&bytes), Err(NoteFault::Version { found: 2 }));
        assert_eq!(decoded(b"GET / HTTP/1.1\r\nHost: kvd\r\n"), Err(NoteFault::Foreign));
        assert!(SessionNote::fits(1 << 20, 60 << 20) && !SessionNote::fits(1 << 20, 63 << 20));
    }
}
