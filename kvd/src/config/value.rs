//! From text to a value: one parser per kind of option, the same for flags, environment, file and
//! defaults. A parser says what it expected; who gave the text is the caller's to add.

use std::net::SocketAddr;
use std::time::Duration;

use kvd_shm::numa::NumaPolicy;

use super::{duration, size};

/// Longest path of a Unix socket: `sun_path` holds 108 bytes, the last one is NUL.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What the text of an option must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `--flag`, `--flag=BOOL`; in the environment and the file a boolean.
    Switch,
    /// A size in bytes, with or without unit.
    Size { min: u64, max: u64 },
    /// A size in bytes or the word `auto`.
    SizeOrAuto { min: u64, max: u64 },
    /// A whole number without unit.
    Count { min: u32, max: u32 },
    /// A time with unit.
    Time { min: Duration, max: Duration },
    /// One of these words; capitals do not matter.
    Word(&'static [&'static str]),
    /// The path of a Unix socket.
    SocketPath,
    /// Any other path, or several of them separated by commas.
    Path,
    /// Free text.
    Text,
    /// Octal permission bits.
    Mode,
    /// A group by name or number.
    Group,
    /// User ids; may be given several times, or separated by commas.
    Users,
    /// Address and port of a TCP listener.
    Address,
    /// Where arena pages go on a host with several memory nodes.
    Numa,
    /// `off`, or one in so many.
    Sample,
}

/// A parsed value. Which variant a kind yields is fixed; `Absent` stands for an empty default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Absent,
    Auto,
    Switch(bool),
    Bytes(u64),
    Count(u32),
    Time(Duration),
    Text(String),
    Mode(u32),
    Users(Vec<u32>),
    Address(SocketAddr),
    Numa(NumaPolicy),
    OneIn(u32),
}

impl Kind {
    /// The placeholder shown after a flag in `--help`; `None` for switches.
    #[must_use]
    pub(super) const fn placeholder(self) -> Option<&'static str> {
        match self {
            Self::Switch => None,
            Self::Size { .. } | Self::SizeOrAuto { .. } => Some("SIZE"),
            Self::Count { .. } => Some("COUNT"),
            Self::Time { .. } => Some("TIME"),
            Self::Word(_) => Some("WORD"),
            Self::SocketPath | Self::Path => Some("PATH"),
            Self::Text => Some("TEXT"),
            Self::Mode => Some("MODE"),
            Self::Group => Some("GROUP"),
            Self::Users => Some("UID"),
            Self::Address => Some("ADDR"),
            Self::Numa => Some("POLICY"),
            Self::Sample => Some("1/N"),
        }
    }

    /// Whether several values add up instead of the last one winning.
    #[must_use]
    pub(super) const fn accumulates(self) -> bool {
        matches!(self, Self::Users)
    }

    /// What is allowed, in words that follow "expected".
    #[must_use]
    pub(super) fn allowed(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Size { min, max } => {
                format!("a size from {} to {}, like 512M or 1.5G", size::show(min), size::show(max))
            }
            Self::SizeOrAuto { min, max } => format!(
                "auto or a size from {} to {}, like 512M or 1.5G",
                size::show(min),
                size::show(max)
            ),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Time { min, max } => format!(
                "a time from {} to {} with unit ms, s, m or h, like 30s or 500ms",
                duration::show(min),
                duration::show(max)
            ),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::SocketPath => format!("a path of 1 to {SOCKET_PATH_BYTES_MAX} bytes"),
            Self::Path => "a path".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Mode => "octal permissions from 0 to 777, like 0660".to_owned(),
            Self::Group => "the name or number of an existing group".to_owned(),
            Self::Users => "user ids (numbers), several separated by commas".to_owned(),
            Self::Address => "ADDRESS:PORT, like 127.0.0.1:9400 or [::1]:9400".to_owned(),
            Self::Numa => "interleave or bind:NODE, like bind:0".to_owned(),
            Self::Sample => "off, or 1/N with N from 1 to 4294967295, like 1/1000".to_owned(),
        }
    }

    /// Reads one text. `None` means that it is not of this kind; [`Kind::allowed`] says what would
    /// be.
    #[must_use]
    pub(super) fn parse(self, text: &str) -> Option<Value> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        match self {
            Self::Switch => parse_switch(text).map(Value::Switch),
            Self::SizeOrAuto { .. } if text.eq_ignore_ascii_case("auto") => Some(Value::Auto),
            Self::Size { min, max } | Self::SizeOrAuto { min, max } => {
                size::parse(text).filter(|bytes| (min..=max).contains(bytes)).map(Value::Bytes)
            }
            Self::Count { min, max } => {
                text.parse().ok().filter(|count| (min..=max).contains(count)).map(Value::Count)
            }
            Self::Time { min, max } => {
                duration::parse(text).filter(|time| (min..=max).contains(time)).map(Value::Time)
            }
            Self::Word(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text))
                .map(|word| Value::Text((*word).to_owned())),
            Self::SocketPath => {
                (text.len() <= SOCKET_PATH_BYTES_MAX).then(|| Value::Text(text.to_owned()))
            }
            Self::Path | Self::Text | Self::Group => Some(Value::Text(text.to_owned())),
            Self::Mode => parse_mode(text).map(Value::Mode),
            Self::Users => parse_users(text).map(Value::Users),
            Self::Address => text.parse().ok().map(Value::Address),
            Self::Numa => text.parse().ok().map(Value::Numa),
            Self::Sample => parse_sample(text),
        }
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    const TRUE: [&str; 4] = ["1", "true", "yes", "on"];
    const FALSE: [&str; 4] = ["0", "false", "no", "off"];
    let is_in = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    match (is_in(TRUE), is_in(FALSE)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

fn parse_sample(text: &str) -> Option<Value> {
    if text.eq_ignore_ascii_case("off") {
        return Some(Value::Absent);
    }
    let (one, many) = text.split_once('/')?;
    let many: u32 = many.trim().parse().ok()?;
    (one.trim() == "1" && many > 0).then_some(Value::OneIn(many))
}

fn parse_mode(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777)
}

fn parse_users(text: &str) -> Option<Vec<u32>> {
    text.split(',').map(|part| part.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_take_the_usual_words_in_any_case() {
        for (text, wanted) in [
            ("1", Some(true)),
            ("YES", Some(true)),
            ("on", Some(true)),
            ("True", Some(true)),
            ("0", Some(false)),
            ("off", Some(false)),
            ("No", Some(false)),
            ("FALSE", Some(false)),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(Kind::Switch.parse(text), wanted.map(Value::Switch), "{text:?}");
        }
    }

    #[test]
    fn modes_are_octal_and_bounded() {
        for (text, wanted) in [
            ("0700", Some(0o700)),
            ("660", Some(0o660)),
            ("0o666", Some(0o666)),
            ("0", Some(0)),
            ("1777", None),
            ("888", None),
            ("rwx", None),
            ("-7", None),
            ("+7", None),
        ] {
            assert_eq!(Kind::Mode.parse(text), wanted.map(Value::Mode), "{text:?}");
        }
    }

    #[test]
    fn samples_are_off_or_one_in_so_many() {
        for (text, wanted) in [
            ("off", Some(Value::Absent)),
            ("OFF", Some(Value::Absent)),
            ("1/1", Some(Value::OneIn(1))),
            ("1 / 1000", Some(Value::OneIn(1000))),
            ("1/0", None),
            ("2/3", None),
            ("0.1", None),
            ("1/4294967296", None),
        ] {
            assert_eq!(Kind::Sample.parse(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn user_lists_are_numbers_between_commas() {
        assert_eq!(Kind::Users.parse("0, 1000,7"), Some(Value::Users(vec![0, 1000, 7])));
        assert_eq!(Kind::Users.parse("root"), None);
        assert_eq!(Kind::Users.parse("1,,2"), None);
        assert_eq!(Kind::Users.parse("4294967296"), None);
    }

    #[test]
    fn bounds_of_sizes_counts_and_times_are_inclusive() {
        let size = Kind::Size { min: 10, max: 1024 };
        assert_eq!(size.parse("10"), Some(Value::Bytes(10)));
        assert_eq!(size.parse("1K"), Some(Value::Bytes(1024)));
        assert_eq!(size.parse("9"), None);
        assert_eq!(size.parse("1025"), None);
        assert_eq!(size.parse("auto"), None);
        assert_eq!(Kind::SizeOrAuto { min: 0, max: 1 }.parse("AUTO"), Some(Value::Auto));
        let count = Kind::Count { min: 1, max: 3 };
        assert_eq!(count.parse("3"), Some(Value::Count(3)));
        assert_eq!(count.parse("4"), None);
        assert_eq!(count.parse("1.5"), None);
        let time = Kind::Time { min: Duration::ZERO, max: Duration::from_secs(1) };
        assert_eq!(time.parse("1s"), Some(Value::Time(Duration::from_secs(1))));
        assert_eq!(time.parse("1001ms"), None);
    }

    #[test]
    fn words_come_back_in_their_own_spelling() {
        let kind = Kind::Word(&["DEBUG", "INFO"]);
        assert_eq!(kind.parse("debug"), Some(Value::Text("DEBUG".to_owned())));
        assert_eq!(kind.parse("TRACE"), None);
    }

    #[test]
    fn a_socket_path_must_fit_its_address() {
        let longest = "/".repeat(SOCKET_PATH_BYTES_MAX);
        assert!(Kind::SocketPath.parse(&longest).is_some());
        assert!(Kind::SocketPath.parse(&format!("{longest}x")).is_none());
    }

    #[test]
    fn addresses_need_a_port() {
        assert!(Kind::Address.parse("127.0.0.1:9400").is_some());
        assert!(Kind::Address.parse("[::1]:9400").is_some());
        assert!(Kind::Address.parse("127.0.0.1").is_none());
    }
}
