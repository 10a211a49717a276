//! The devices of the disk tier, as `/v1/stats` and `/readyz` show them.

use kvd_store::DeviceInfo;
use serde::Serialize;

use crate::admin::metrics::load;
use crate::daemon::Daemon;
use crate::devices::device::Device;
use crate::devices::health;

/// One device. Counters count from the start of the daemon.
#[derive(Debug, Serialize)]
pub(super) struct DeviceView {
    device: u8,
    path: String,
    /// `ok`, `recovering`, `failed` or `refused`.
    health: &'static str,
    /// What is amiss; null if nothing is.
    reason: Option<String>,
    /// What moves the bytes: `uring` or `blocking`; null if nothing does.
    engine: Option<&'static str>,
    /// Payload bytes of its blocks.
    bytes: u64,
    entries: u64,
    /// Bytes of its containers so far, and of them those that hold nothing.
    capacity_bytes: u64,
    free_bytes: u64,
    /// Bytes of places that failed; they are left alone until a restart.
    quarantined_bytes: u64,
    /// Most bytes of all its files.
    cap_bytes: u64,
    loads_total: u64,
    loaded_bytes_total: u64,
    spills_total: u64,
    spilled_bytes_total: u64,
    record_bytes_total: u64,
    corrupt_total: u64,
    faults_total: u64,
    /// As measured; 0 before the first block.
    read_bytes_per_second: u64,
    write_bytes_per_second: u64,
}

/// All of them.
pub(super) fn all(daemon: &Daemon) -> Vec<DeviceView> {
    let infos = daemon.brain.inspect(|store, _| store.devices());
    daemon.devices.with(&infos).map(|(device, info)| view(daemon, device, &info)).collect()
}

fn view(daemon: &Daemon, device: &Device, info: &DeviceInfo) -> DeviceView {
    let (health, reason) = health::of(device, info);
    let meters = &device.meters;
    DeviceView {
        device: device.id.0,
        path: device.path.display().to_string(),
        health: health.as_str(),
        reason,
        engine: device.engine(),
        bytes: info.payload_bytes,
        entries: info.entries,
        capacity_bytes: info.capacity_bytes,
        free_bytes: info.free_bytes,
        quarantined_bytes: info.quarantined_bytes,
        cap_bytes: daemon.settings.disk.bytes_each,
        loads_total: load(&meters.loads),
        loaded_bytes_total: load(&meters.read_bytes),
        spills_total: load(&meters.spills),
        spilled_bytes_total: load(&meters.written_bytes),
        record_bytes_total: load(&meters.record_bytes),
        corrupt_total: load(&meters.corrupt),
        faults_total: load(&meters.faults),
        read_bytes_per_second: info.read_bytes_per_s,
        write_bytes_per_second: info.write_bytes_per_s,
    }
}

/// Everything that the daemon does without: what was noted, and how its devices are.
pub(super) fn degradations(daemon: &Daemon) -> Vec<String> {
    let mut lines = daemon.status.notes();
    if !daemon.devices.is_empty() {
        let infos = daemon.brain.inspect(|store, _| store.devices());
        lines.extend(health::degradations(daemon.devices.with(&infos)));
    }
    lines
}
