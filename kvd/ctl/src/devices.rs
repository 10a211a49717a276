//! The disk tier's devices, as the daemon tells of them in `/v1/stats`.

use std::time::Duration;

use serde::Deserialize;

use crate::text;

/// One device. What a daemon does not tell counts as nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Device {
    path: String,
    /// One word; `ok` if it is in use.
    health: String,
    /// Why it is not.
    reason: Option<String>,
    engine: String,
    entries: u64,
    bytes: u64,
    capacity_bytes: u64,
    loaded_bytes_total: u64,
    spilled_bytes_total: u64,
    corrupt_total: u64,
}

/// Devices in what the daemon says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Devices {
    pub(crate) devices: Vec<Device>,
}

pub(crate) const HEAD: [&str; 10] =
    ["DEVICE", "HEALTH", "ENGINE", "BLOCKS", "BYTES", "OF", "FULL", "LOADED", "SPILLED", "CORRUPT"];
/// The first column of numbers.
pub(crate) const NUMBERS_FROM: usize = 3;

impl Device {
    /// The cells under [`HEAD`].
    pub(crate) fn cells(&self) -> [String; 10] {
        let percent = u128::from(self.bytes) * 100 / u128::from(self.capacity_bytes.max(1));
        [
            self.path.clone(),
            self.in_words(),
            self.engine.clone(),
            text::count(self.entries),
            text::bytes(self.bytes),
            text::bytes(self.capacity_bytes),
            format!("{percent} %"),
            text::bytes(self.loaded_bytes_total),
            text::bytes(self.spilled_bytes_total),
            text::count(self.corrupt_total),
        ]
    }

    /// One line, with rates if there is an earlier look.
    pub(crate) fn line(&self, earlier: Option<(&Self, Duration)>) -> String {
        let mut line = format!(
            "{}: {}, {} blocks, {} of {}",
            self.path,
            self.in_words(),
            text::count(self.entries),
            text::bytes(self.bytes),
            text::bytes(self.capacity_bytes),
        );
        match earlier {
            Some((earlier, passed)) => {
                let rate = |now: u64, then: u64| rate(now.saturating_sub(then), passed);
                line += &format!(
                    ", loads {}/s, spills {}/s",
                    rate(self.loaded_bytes_total, earlier.loaded_bytes_total),
                    rate(self.spilled_bytes_total, earlier.spilled_bytes_total),
                );
            }
            None => {
                line += &format!(
                    ", loaded {}, spilled {}",
                    text::bytes(self.loaded_bytes_total),
                    text::bytes(self.spilled_bytes_total),
                );
            }
        }
        if self.corrupt_total > 0 {
            line += &format!(", {} corrupt", text::count(self.corrupt_total));
        }
        line
    }

    /// The same device in an earlier look.
    pub(crate) fn among<'a>(&self, earlier: &'a [Self]) -> Option<&'a Self> {
        earlier.iter().find(|device| device.path == self.path)
    }

    fn in_words(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{} ({reason})", self.health),
            None => self.health.clone(),
        }
    }
}

fn rate(bytes: u64, passed: Duration) -> String {
    let millis = passed.as_millis().max(1);
    let rate = u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX);
    text::bytes(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(spilled: u64) -> Device {
        let answer = r#"{"devices": [{"path": "/data", "health": "ok", "reason": null, "engine": "uring",
            "entries": 1234, "bytes": 1048576, "capacity_bytes": 4194304, "corrupt_total": 2,
            "what a later release adds": 1}]}"#;
        let devices: Devices = serde_json::from_str(answer).expect("an answer");
        Device { spilled_bytes_total: spilled, ..devices.devices[0].clone() }
    }

    #[test]
    fn rates_are_differences_of_two_looks() {
        let (then, now) = (device(1 << 20), device(5 << 20));
        assert_eq!(
            now.line(Some((&then, Duration::from_secs(2)))),
            "/data: ok, 1,234 blocks, 1.00 MiB of 4.00 MiB, loads 0 B/s, spills 2.00 MiB/s, 2 corrupt"
        );
        assert!(now.line(None).contains("spilled 5.00 MiB"));
        assert_eq!(now.cells()[6], "25 %");
        assert!(now.among(&[then]).is_some() && now.among(&[]).is_none());
    }

    #[test]
    fn a_device_that_failed_says_why() {
        let failed = Device { reason: Some("EIO".into()), health: "failed".into(), ..device(0) };
        assert_eq!(failed.cells()[1], "failed (EIO)");
    }
}
