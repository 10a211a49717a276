//! What people are told of a device's health: in `/readyz` and metrics at any time, in the log once
//! for each change.

use kvd_store::{DeviceFault, DeviceHealth, DeviceInfo};

use super::device::Device;

/// The state of a device in one word, a label of metrics and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// In use.
    Ok,
    /// Its journal is being read; its blocks are not found yet.
    Recovering,
    /// It was in use and no longer is.
    Failed,
    /// It could not be used from the start.
    Refused,
}

impl Health {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Recovering, Self::Failed, Self::Refused];

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Recovering => "recovering",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// How a device is, and why if it is not well.
#[must_use]
pub fn of(device: &Device, info: &DeviceInfo) -> (Health, Option<String>) {
    if let Some(reason) = device.refusal() {
        return (Health::Refused, Some(reason));
    }
    match info.health {
        DeviceHealth::Recovering => (Health::Recovering, device.condition()),
        DeviceHealth::Ready => (Health::Ok, device.condition()),
        DeviceHealth::Failed(fault) => (Health::Failed, Some(explain(fault).to_owned())),
    }
}

const fn explain(fault: DeviceFault) -> &'static str {
    match fault {
        DeviceFault::Unusable => "it could not be opened or recovered",
        DeviceFault::Journal => {
            "its journal could not be written; look at the device, then restart the daemon"
        }
        DeviceFault::Sync => {
            "a sync failed, so nothing written to it can be relied on; look at the device, then \
             restart the daemon"
        }
        DeviceFault::Io => {
            "too many reads or writes failed one after the other; look at the device, then restart \
             the daemon"
        }
        DeviceFault::Removed => {
            "its files were removed, moved or replaced; restart the daemon to go on with what is there"
        }
    }
}

/// The lines of `/readyz` for what is not as it should be.
pub fn degradations<'a>(
    devices: impl Iterator<Item = (&'a Device, DeviceInfo)>,
) -> impl Iterator<Item = String> {
    devices.filter_map(|(device, info)| {
        let (health, reason) = of(device, &info);
        let path = device.path.display();
        match (health, reason) {
            (Health::Ok | Health::Recovering, None) => None,
            (Health::Ok | Health::Recovering, Some(reason)) => {
                Some(format!("disk tier in {path}: {reason}"))
            }
            (Health::Failed | Health::Refused, reason) => {
                let reason = reason.unwrap_or_default();
                Some(format!("disk tier in {path} is not used: {reason}"))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use kvd_store::DeviceId;

    use super::*;

    fn info(health: DeviceHealth) -> DeviceInfo {
        DeviceInfo {
            device: DeviceId(0),
            health,
            entries: 0,
            payload_bytes: 0,
            capacity_bytes: 0,
            free_bytes: 0,
            quarantined_bytes: 0,
            loads: 0,
            load_bytes: 0,
            spills: 0,
            read_bytes_per_s: 0,
            read_latency_us: 0,
            write_bytes_per_s: 0,
            faults_in_a_row: 0,
        }
    }

    fn lines(device: &Device, health: DeviceHealth) -> Vec<String> {
        degradations([(device, info(health))].into_iter()).collect()
    }

    #[test]
    fn only_what_is_amiss_is_said() {
        let device = Device::new(DeviceId(0), "/data".into());
        assert!(lines(&device, DeviceHealth::Ready).is_empty());
        assert!(lines(&device, DeviceHealth::Recovering).is_empty());
        device.set_condition(Some("the file system is full".into()));
        let wanted = ["disk tier in /data: the file system is full"];
        assert_eq!(lines(&device, DeviceHealth::Ready), wanted);
        let failed = lines(&device, DeviceHealth::Failed(DeviceFault::Sync));
        assert!(
            failed[0].starts_with("disk tier in /data is not used: a sync failed"),
            "{failed:?}"
        );
        device.refuse("read-only");
        let refused = lines(&device, DeviceHealth::Recovering);
        assert_eq!(refused, ["disk tier in /data is not used: read-only"]);
    }
}
