//! Bare connections: frames built from any values, right or wrong, and any other bytes. Nothing of the project's own
//! codec is used, so that a mistake in it cannot hide.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use kvd_shm::descriptor::receive_with_descriptors;
use kvd_shm::mapping::{Access, Mapping};
pub use rmpv::Value;

/// A frame: big-endian length, then `body`.
///
/// # Panics
/// If `body` has 4 GiB or more.
#[must_use]
pub fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a body below 4 GiB");
    [&length.to_be_bytes(), body].concat()
}

/// The frame of a message: `op` first, then `fields` in their order.
///
/// # Panics
/// Never: writing to memory does not fail.
#[must_use]
pub fn message(op: &str, fields: &[(&str, Value)]) -> Vec<u8> {
    let fields = fields.iter().map(|(name, value)| (Value::from(*name), value.clone()));
    let pairs = std::iter::once((Value::from("op"), Value::from(op))).chain(fields).collect();
    let mut body = Vec::new();
    rmpv::encode::write_value(&mut body, &Value::Map(pairs)).expect("writing to memory");
    frame(&body)
}

/// Packed numbers of a protocol-2 column.
#[must_use]
pub fn column(numbers: &[u64]) -> Value {
    Value::Binary(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

/// The two columns of protocol-2 keys: lengths, then all the bytes.
///
/// # Panics
/// If a key has 64 KiB or more.
#[must_use]
pub fn key_columns(keys: &[&[u8]]) -> (Value, Value) {
    let length_of = |key: &&[u8]| u16::try_from(key.len()).expect("a key below 64 KiB");
    let lengths = keys.iter().flat_map(|key| length_of(key).to_le_bytes()).collect();
    (Value::Binary(lengths), Value::Binary(keys.concat()))
}

/// A message that came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Message(Vec<(Value, Value)>);

impl Message {
    fn decode(mut body: &[u8]) -> Self {
        let value = rmpv::decode::read_value(&mut body).expect("msgpack");
        assert!(body.is_empty(), "{} bytes after the message", body.len());
        match value {
            Value::Map(fields) => Self(fields),
            other => panic!("not a map: {other}"),
        }
    }

    /// The field `name`.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn field(&self, name: &str) -> &Value {
        let found = self.0.iter().find(|(key, _)| key.as_str() == Some(name));
        &found.unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }

    /// What kind of message it is.
    ///
    /// # Panics
    /// If it does not say.
    #[must_use]
    pub fn op(&self) -> &str {
        self.field("op").as_str().expect("op is a text")
    }

    /// The number in the field `name`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn u64(&self, name: &str) -> u64 {
        self.field(name).as_u64().unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// The answer in the field `name`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn bool(&self, name: &str) -> bool {
        self.field(name).as_bool().unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// The text in the field `name`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.field(name).as_str().unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// The bytes in the field `name`; `None` for nil.
    ///
    /// # Panics
    /// If it holds something else.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.field(name) {
            Value::Binary(bytes) => Some(bytes),
            Value::Nil => None,
            other => panic!("{name} is {other}"),
        }
    }

    /// The numbers of a packed column of 8-byte numbers.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn column(&self, name: &str) -> Vec<u64> {
        let bytes = self.bytes(name).expect("a column");
        let (numbers, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty(), "{name} has {} bytes", bytes.len());
        numbers.iter().map(|number| u64::from_le_bytes(*number)).collect()
    }
}

/// A connection. Reads give up after [`crate::PATIENCE`].
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
}

/// A connection that got the arena.
#[derive(Debug)]
pub struct Attached {
    /// The connection.
    pub wire: Wire,
    /// The daemon's answer to the greeting.
    pub ack: Message,
    /// The arena, mapped for reading and writing as every client does.
    pub arena: Arc<Mapping>,
}

impl Wire {
    /// Connects, and says nothing.
    ///
    /// # Panics
    /// If nobody accepts.
    #[must_use]
    pub fn connect(socket: &Path) -> Self {
        Self::try_connect(socket)
            .unwrap_or_else(|trouble| panic!("{}: {trouble}", socket.display()))
    }

    /// Connects if somebody accepts, and says nothing.
    ///
    /// # Errors
    /// As `connect(2)`: the daemon may be gone.
    pub fn try_connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(crate::PATIENCE))?;
        Ok(Self { stream })
    }

    /// The socket itself.
    #[must_use]
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the daemon has closed; see [`Wire::try_send`].
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("sending");
    }

    /// Sends bytes as they are, as many as it takes.
    ///
    /// # Errors
    /// As `write(2)`: the daemon may have closed.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending half: the daemon sees the end of the stream.
    ///
    /// # Panics
    /// If the socket is not connected any more.
    pub fn finish_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("closing the sending half");
    }

    /// The next message; `None` if the daemon closed instead.
    ///
    /// # Panics
    /// If neither comes, or something else does.
    pub fn receive(&mut self) -> Option<Message> {
        let mut length = [0; 4];
        if !self.receive_exactly(&mut length) {
            return None;
        }
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        assert!(self.receive_exactly(&mut body), "closed inside a frame");
        Some(Message::decode(&body))
    }

    /// One round trip.
    ///
    /// # Panics
    /// If the daemon closes instead.
    pub fn ask(&mut self, op: &str, fields: &[(&str, Value)]) -> Message {
        let answer = self.try_ask(op, fields);
        answer.unwrap_or_else(|| panic!("closed instead of an answer to {op}"))
    }

    /// As [`Wire::ask`]; `None` if the daemon has closed.
    ///
    /// # Panics
    /// If it closes inside of its answer.
    pub fn try_ask(&mut self, op: &str, fields: &[(&str, Value)]) -> Option<Message> {
        self.try_send(&message(op, fields)).ok()?;
        self.receive()
    }

    /// The daemon closes, and says nothing before.
    ///
    /// # Panics
    /// If it does not.
    pub fn expect_closed(&mut self) {
        if let Some(message) = self.receive() {
            panic!("an answer instead of the end: {message:?}");
        }
    }

    /// Greets the daemon and takes the arena; `protocol_version` is 1 or 2.
    ///
    /// # Panics
    /// If there is no arena, or it cannot be mapped.
    #[must_use]
    pub fn attach(self, protocol_version: u64) -> Attached {
        self.try_attach(protocol_version).expect("an answer to the greeting")
    }

    /// As [`Wire::attach`]; `None` if the daemon closes instead.
    ///
    /// # Panics
    /// If there is an answer, but no arena, or it cannot be mapped.
    #[must_use]
    pub fn try_attach(mut self, protocol_version: u64) -> Option<Attached> {
        let greeting = [
            ("client_id", Value::from("kvd-tests")),
            ("protocol_version", Value::from(protocol_version)),
            ("prefers_shared_arena", Value::from(true)),
        ];
        let ack = self.try_ask("hello", &greeting)?;
        assert_eq!(ack.op(), "hello_ack", "{ack:?}");
        let size = ack.field("shared_arena").as_array().and_then(|arena| arena.first()?.as_u64());
        let size = size.unwrap_or_else(|| panic!("no arena in {ack:?}"));
        let arena = Mapping::map(self.receive_descriptor(), size, Access::ReadWrite);
        Some(Attached { arena: Arc::new(arena.expect("mapping the arena")), wire: self, ack })
    }

    /// One byte that carries exactly one descriptor.
    ///
    /// # Panics
    /// If something else comes.
    #[must_use]
    pub fn receive_descriptor(&mut self) -> OwnedFd {
        let mut marker = [0];
        let received = receive_with_descriptors(self.stream.as_fd(), &mut marker, 1);
        let (count, mut descriptors) = received.expect("receiving the descriptor");
        assert_eq!(count, 1, "the marker");
        descriptors.pop().expect("a descriptor with the marker")
    }

    /// Fills `buffer`; `false` if the daemon closed before the first byte.
    fn receive_exactly(&mut self, buffer: &mut [u8]) -> bool {
        let mut at = 0;
        while at < buffer.len() {
            match self.stream.read(&mut buffer[at..]) {
                Ok(0) => break,
                Ok(count) => at += count,
                Err(trouble) if trouble.kind() == io::ErrorKind::Interrupted => {}
                // Closed with bytes of ours unread.
                Err(trouble) if trouble.kind() == io::ErrorKind::ConnectionReset => break,
                Err(trouble) => panic!("after {at} of {} bytes: {trouble}", buffer.len()),
            }
        }
        assert!(at == 0 || at == buffer.len(), "closed after {at} of {} bytes", buffer.len());
        buffer.is_empty() || at > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_there_and_back() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (Wire { stream: near }, Wire { stream: far });
        let (lengths, keys) = key_columns(&[b"a", b"", b"ccc"]);
        near.send(&message("get", &[("n", Value::from(7)), ("lens", lengths), ("keys", keys)]));
        near.send(&message("column", &[("v", column(&[1, u64::MAX])), ("nil", Value::Nil)]));
        let first = far.receive().unwrap();
        assert_eq!((first.op(), first.u64("n")), ("get", 7));
        assert_eq!(first.bytes("lens"), Some(&[1, 0, 0, 0, 3, 0][..]));
        assert_eq!(first.bytes("keys"), Some(&b"accc"[..]));
        let second = far.receive().unwrap();
        assert_eq!((second.column("v"), second.bytes("nil")), (vec![1, u64::MAX], None));
        near.finish_sending();
        far.expect_closed();
    }

    #[test]
    #[should_panic(expected = "closed after 2 of 4 bytes")]
    fn an_end_inside_a_frame_is_no_quiet_end() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&[0, 0]).unwrap();
        drop(near);
        Wire { stream: far }.expect_closed();
    }
}
