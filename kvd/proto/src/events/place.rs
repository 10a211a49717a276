//! Where a block is: tiers, and the words that engines and the daemon have for them.

/// A place that a request can be served from, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CacheTier {
    /// Memory of the accelerator.
    Device = 1,
    /// Host memory.
    L2 = 2,
    /// Files of this host.
    L3 = 3,
    /// A pool that several hosts share.
    L4 = 4,
}

impl CacheTier {
    /// Every tier, nearest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::L2, Self::L3, Self::L4];

    /// The word that stands for the tier in events and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::L4 => "l4",
        }
    }

    /// The tier that `word` names, whatever its case.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| word.eq_ignore_ascii_case(tier.as_str()))
    }

    /// The medium and the locality that the daemon sends beside the tier, for those who don't know tiers.
    #[must_use]
    pub const fn medium(self) -> (&'static str, &'static str) {
        match self {
            Self::Device => ("GPU", LOCAL),
            Self::L2 => ("CPU", LOCAL),
            Self::L3 => ("STORAGE", LOCAL),
            Self::L4 => ("STORAGE", REMOTE),
        }
    }
}

const LOCAL: &str = "LOCAL";
const REMOTE: &str = "REMOTE";

const DEVICE_MEDIA: &[&str] = &["GPU", "DEVICE"];
const HOST_MEDIA: &[&str] = &["CPU", "CPU_PINNED", "CPU_TIER1"];
const DISK_MEDIA: &[&str] = &["DISK", "NVME", "STORAGE", "FS", "CPU_TIER2"];
const POOL_MEDIA: &[&str] = &["OBJ", "EXTERNAL", "NETWORK", "REMOTE", "SHARED"];

/// Where an event says its blocks are, in its own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// The kind of memory or storage.
    pub medium: Option<&'a str>,
    /// Whether it is this host's: `LOCAL`, `REMOTE`.
    pub locality: Option<&'a str>,
    /// The daemon's word, which wins over the medium.
    pub tier: Option<&'a str>,
}

impl Place<'_> {
    /// The place of a tier, as the daemon says it.
    #[must_use]
    pub const fn of(tier: CacheTier) -> Place<'static> {
        let (medium, locality) = tier.medium();
        Place { medium: Some(medium), locality: Some(locality), tier: Some(tier.as_str()) }
    }

    /// Whether the blocks are on another host.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.locality.is_some_and(|locality| locality.eq_ignore_ascii_case(REMOTE))
    }

    /// The tier, or nothing if the words have no meaning here. An event without any word means the device.
    #[must_use]
    pub fn cache_tier(&self) -> Option<CacheTier> {
        if let Some(tier) = self.tier {
            return CacheTier::parse(tier);
        }
        let Some(medium) = self.medium else {
            return Some(CacheTier::Device);
        };
        let is_among =
            |media: &[&str]| media.iter().any(|known| medium.eq_ignore_ascii_case(known));
        if is_among(DEVICE_MEDIA) {
            Some(CacheTier::Device)
        } else if is_among(HOST_MEDIA) {
            Some(CacheTier::L2)
        } else if is_among(DISK_MEDIA) {
            Some(if self.is_remote() { CacheTier::L4 } else { CacheTier::L3 })
        } else if is_among(POOL_MEDIA) {
            Some(CacheTier::L4)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(medium: &str, locality: Option<&str>) -> Option<CacheTier> {
        Place { medium: Some(medium), locality, tier: None }.cache_tier()
    }

    #[test]
    fn media_are_known_in_any_case_and_others_are_nowhere() {
        assert_eq!(Place::default().cache_tier(), Some(CacheTier::Device));
        assert_eq!(of("gpu", None), Some(CacheTier::Device));
        assert_eq!(of("Cpu_Pinned", None), Some(CacheTier::L2));
        assert_eq!(of("STORAGE", Some("local")), Some(CacheTier::L3));
        assert_eq!(of("storage", Some("remote")), Some(CacheTier::L4));
        assert_eq!(of("shared", None), Some(CacheTier::L4));
        for unknown in ["", "TPU", "GPU ", "CPU_TIER3"] {
            assert_eq!(of(unknown, None), None, "{unknown:?}");
        }
    }

    #[test]
    fn the_daemons_word_wins_and_is_believed_only_if_known() {
        for tier in CacheTier::ALL {
            assert_eq!(Place::of(tier).cache_tier(), Some(tier));
            let (medium, locality) = tier.medium();
            assert_eq!(of(medium, Some(locality)), Some(tier));
        }
        let odd = Place { medium: Some("CPU"), locality: None, tier: Some("l5") };
        assert_eq!(odd.cache_tier(), None);
    }
}
