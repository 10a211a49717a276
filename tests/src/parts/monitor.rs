//! The control connection of `qemu-storage-daemon`: one JSON object a line, each way.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::PATIENCE;
use crate::until::until;

/// A connection that has been greeted.
#[derive(Debug)]
pub(super) struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects as soon as somebody listens at `socket`.
    pub(super) fn connect(socket: &Path) -> Self {
        let stream =
            until("the storage daemon answers", PATIENCE, || UnixStream::connect(socket).ok());
        stream.set_read_timeout(Some(PATIENCE)).expect("setting a timeout");
        let mut monitor = Self { lines: BufReader::new(stream) };
        let greeting = monitor.line();
        assert!(greeting.get("QMP").is_some(), "{greeting}");
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    /// Runs a command.
    ///
    /// # Panics
    /// If it is refused.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) {
        let line = json!({"execute": command, "arguments": arguments});
        writeln!(self.lines.get_mut(), "{line}").expect("asking the storage daemon");
        loop {
            let answer = self.line();
            // A greeting may come twice, if we connect while it opens its socket.
            if answer.get("event").is_some() || answer.get("QMP").is_some() {
                continue;
            }
            assert!(answer.get("return").is_some(), "{line}: {answer}");
            return;
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("an answer of the storage daemon");
        serde_json::from_str(&line).unwrap_or_else(|trouble| panic!("{line:?}: {trouble}"))
    }
}
