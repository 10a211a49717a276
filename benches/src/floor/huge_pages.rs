//! Pages of 2 MiB for a program that takes them from the kernel's pool: reserved for as long as it runs, given back
//! after. Device transfers into pages of 4 KiB run at a third of the speed, so a floor without them would be no floor.

use std::fs;

use anyhow::{Context as _, bail};

const POOL: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "HugePages_Free:";

/// Bytes of one page of the pool.
pub const PAGE_BYTES: u64 = 2 << 20;

/// Pages that are in the pool until this is dropped.
#[derive(Debug)]
#[must_use = "the pages go back when this is dropped"]
pub struct HugePages {
    before: u64,
}

impl HugePages {
    /// Adds pages for so many bytes to the pool.
    ///
    /// # Errors
    /// If this user may not, or the memory is too scattered.
    pub fn reserve(bytes: u64) -> anyhow::Result<Self> {
        let before = pages_in_pool()?;
        let wanted = bytes.div_ceil(PAGE_BYTES);
        let pool = (before + wanted).to_string();
        fs::write(POOL, pool).context("reserving pages of 2 MiB needs root")?;
        let reserved = Self { before };
        let free = free_pages()?;
        if free < wanted {
            bail!("the kernel has {free} free pages of 2 MiB, {wanted} are needed");
        }
        Ok(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // It could be written a moment ago. If not now, the pages stay reserved, and nothing else can be done about it.
        let _refused = fs::write(POOL, self.before.to_string());
    }
}

fn pages_in_pool() -> anyhow::Result<u64> {
    let text = fs::read_to_string(POOL).context("asking for the pool of pages of 2 MiB")?;
    text.trim().parse().with_context(|| format!("{POOL} says {text:?}"))
}

fn free_pages() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let free = text.lines().find_map(|line| line.strip_prefix(FREE)?.trim().parse().ok());
    free.context("/proc/meminfo without free huge pages")
}
