//! What a process under test says: every line is kept, and can be waited for.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The lines so far, and whether the process has closed its end.
#[derive(Debug, Default)]
struct Said {
    lines: Vec<String>,
    ended: bool,
}

/// A log that a thread of its own reads until the process closes it.
#[derive(Debug)]
pub struct Log {
    said: Arc<(Mutex<Said>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Log {
    /// Reads `source` to its end, in a thread that [`Log::join`] waits for.
    ///
    /// # Panics
    /// If the thread cannot be started.
    #[must_use]
    pub fn of(source: impl Read + Send + 'static) -> Self {
        let said = Arc::new((Mutex::new(Said::default()), Condvar::new()));
        let into = Arc::clone(&said);
        let reader = std::thread::Builder::new()
            .name("log-reader".to_owned())
            .spawn(move || {
                for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    into.0.lock().expect("the log's lock").lines.push(line);
                    into.1.notify_all();
                }
                into.0.lock().expect("the log's lock").ended = true;
                into.1.notify_all();
            })
            .expect("starting the log's reader");
        Self { said, reader: Some(reader) }
    }

    /// Every line so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.said.0.lock().expect("the log's lock").lines.clone()
    }

    /// All of it, for a message of failure.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// How many lines hold `part`.
    #[must_use]
    pub fn count(&self, part: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(part)).count()
    }

    /// Waits for a line that holds `part`, and gives it back.
    ///
    /// # Panics
    /// If the process ends, or [`crate::PATIENCE`] is over, before it is said.
    #[must_use]
    pub fn wait_for(&self, part: &str) -> String {
        let found = self.wait(crate::PATIENCE, |said| {
            said.ended || said.lines.iter().any(|line| line.contains(part))
        });
        let line = self.lines().into_iter().find(|line| line.contains(part));
        assert!(found && line.is_some(), "{part:?} was never said:\n{}", self.text());
        line.unwrap_or_default()
    }

    /// Waits until the process has closed its end: it has exited. `false` if it has not by then.
    #[must_use]
    pub fn wait_for_end(&self, patience: Duration) -> bool {
        self.wait(patience, |said| said.ended)
    }

    /// Waits for the next line, for the end, or for a moment.
    pub(crate) fn wait_a_moment(&self) {
        let before = self.lines().len();
        let moment = Duration::from_millis(5);
        let _whatever_came = self.wait(moment, |said| said.ended || said.lines.len() > before);
    }

    fn wait(&self, patience: Duration, holds: impl Fn(&Said) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let mut said = self.said.0.lock().expect("the log's lock");
        while !holds(&said) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            said = self.said.1.wait_timeout(said, left).expect("the log's lock").0;
        }
        true
    }

    /// Waits for the reader. The process must be gone, or this waits for it.
    ///
    /// # Panics
    /// If the reader panicked.
    pub fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log's reader");
        }
    }
}

/// The WARN and ERROR lines of `lines` that hold none of the `announced` parts.
#[must_use]
pub fn unexpected(lines: &[String], announced: &[String]) -> Vec<String> {
    let is_trouble = |line: &String| line.contains(" WARN ") || line.contains("ERROR ");
    let is_announced = |line: &String| announced.iter().any(|part| line.contains(part));
    lines.iter().filter(|line| is_trouble(line) && !is_announced(line)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_and_the_end_is_seen() {
        let mut log = Log::of("one\ntwo\n\u{fffd}".as_bytes());
        assert_eq!(log.wait_for("two"), "two");
        assert!(log.wait_for_end(crate::PATIENCE));
        log.join();
        assert_eq!(log.lines().len(), 3);
        assert_eq!(log.count("o"), 2);
    }

    #[test]
    #[should_panic(expected = "was never said")]
    fn a_line_that_never_comes_fails_when_the_process_ends() {
        let _never = Log::of("one\n".as_bytes()).wait_for("two");
    }

    #[test]
    fn trouble_is_unexpected_unless_announced() {
        let lines = ["12:00  WARN a: mlock", "12:00  INFO b: fine", "12:00 ERROR c: broken"];
        let lines: Vec<String> = lines.map(str::to_owned).to_vec();
        assert_eq!(unexpected(&lines, &[]).len(), 2);
        assert_eq!(unexpected(&lines, &["mlock".to_owned()]), [lines[2].clone()]);
    }
}
