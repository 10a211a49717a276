//! Clears on devices: said in the journal first, then done in slices, and not acknowledged before
//! that is on stable storage.

use super::device::State;
use super::work::WaitId;
use crate::input::ClearScope;
use crate::store::Store;

/// Where a clear of devices goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClearBelow {
    device: u8,
    /// Blocks of this generation and later came after the clear.
    below: u64,
    from: u32,
}

impl Store {
    /// Tells every device what is to be cleared. Where its slices begin; none without devices.
    pub(crate) fn begin_clear_below(&mut self, scope: ClearScope<'_>) -> Option<ClearBelow> {
        if !self.disk.exists() {
            return None;
        }
        self.clear_late(scope);
        let below = self.disk.generation + 1;
        for device in &mut self.disk.devices {
            if let Some(tablespace) = device.tablespace_mut() {
                tablespace.begin_clear(scope, below);
            }
        }
        self.disk.out.devices_to_wake |= self.disk.ready_bits();
        Some(ClearBelow { device: 0, below, from: 0 })
    }

    /// One slice; where the next one begins.
    pub(crate) fn clear_slice_below(
        &mut self,
        scope: ClearScope<'_>,
        at: ClearBelow,
    ) -> Option<ClearBelow> {
        let device = &mut self.disk.devices[usize::from(at.device)];
        let next = device.tablespace_mut().and_then(|tablespace| {
            let (_, next) = tablespace.clear_slice(scope, at.below, at.from);
            next
        });
        self.absorb(at.device);
        if let Some(from) = next {
            return Some(ClearBelow { from, ..at });
        }
        let device = at.device + 1;
        (device < self.disk.count()).then_some(ClearBelow { device, from: 0, ..at })
    }

    /// All rows and blocks are gone: what the acknowledgement waits for.
    pub(crate) fn wait_for_clear(&mut self) -> Option<WaitId> {
        if !self.disk.exists() {
            return None;
        }
        let wait = self.disk.waits.begin();
        for device in 0..self.disk.count() {
            self.disk.waits.add(wait);
            let at = &mut self.disk.devices[usize::from(device)];
            match at.state {
                State::Recovering | State::Arriving(..) => at.waits.push(wait),
                State::Ready(_) | State::Failed(_) => self.wait_for_sync(device, wait),
            }
        }
        self.disk.waits.seal(wait);
        Some(wait)
    }
}
