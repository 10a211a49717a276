//! What a crash leaves: every write that no sync covers may be there, be missing, or be there in part.

use std::collections::BTreeMap;

use super::log::{Late, Patch};
use super::random::Stream;
use crate::operation::FileId;

/// The contents of all files.
pub type Image = BTreeMap<FileId, Vec<u8>>;

/// Up to this many loose writes, every subset is an image.
pub const ALL_SUBSETS_MAX: usize = 10;

/// A moment at which the power goes.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    certain: Image,
    late: Vec<Late>,
    loose: usize,
}

/// Which part of a loose write reached the medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Survival {
    /// Nothing.
    Lost,
    /// All of it.
    Whole,
    /// Sectors of `grain_bytes`, as many as the seed says, in any order; at least one is missing if the
    /// write has more than one.
    Torn {
        /// 512 or 4096; positions are those of the file.
        grain_bytes: usize,
        /// Decides which sectors.
        seed: u64,
    },
}

impl CrashPoint {
    pub(super) fn new(certain: Image, late: Vec<Late>) -> Self {
        let loose = late.iter().filter(|late| late.is_loose).count();
        Self { certain, late, loose }
    }

    /// How many writes may or may not be there.
    #[must_use]
    pub fn loose_writes(&self) -> usize {
        self.loose
    }

    /// The image in which the loose writes fare as told, asked for by number in the order in which
    /// they happened.
    #[must_use]
    pub fn image(&self, mut survival: impl FnMut(usize) -> Survival) -> Image {
        let mut image = self.certain.clone();
        let mut number = 0_usize;
        for Late { file, patch, is_loose } in &self.late {
            let contents = image.entry(*file).or_default();
            if !is_loose {
                patch.apply(contents);
                continue;
            }
            match survival(number) {
                Survival::Lost => {}
                Survival::Whole => patch.apply(contents),
                Survival::Torn { grain_bytes, seed } => {
                    for part in torn(patch, grain_bytes, &mut Stream::new(seed, number as u64)) {
                        part.apply(contents);
                    }
                }
            }
            number = number.saturating_add(1);
        }
        image
    }

    /// The image for a subset of the loose writes, one bit each.
    #[must_use]
    pub fn subset(&self, members: u64) -> Image {
        let is_member = |number: usize| {
            let bit = u32::try_from(number).ok().and_then(|number| members.checked_shr(number));
            bit.is_some_and(|bits| bits & 1 == 1)
        };
        self.image(|number| if is_member(number) { Survival::Whole } else { Survival::Lost })
    }

    /// Every subset if there are at most [`ALL_SUBSETS_MAX`] loose writes; else nothing, everything, and
    /// `samples` drawn subsets.
    pub fn subsets(&self, seed: u64, samples: usize) -> impl Iterator<Item = Image> + '_ {
        let all = self.loose <= ALL_SUBSETS_MAX;
        let count = if all { 1 << self.loose } else { samples.saturating_add(2) };
        let mut stream = Stream::new(seed, 0);
        (0..count).map(move |number| match number {
            number if all => self.subset(number as u64),
            0 => self.image(|_| Survival::Lost),
            1 => self.image(|_| Survival::Whole),
            _drawn => self.image(|_| match stream.below(2) {
                0 => Survival::Lost,
                _one => Survival::Whole,
            }),
        })
    }

    /// `samples` images in which each loose write is missing, whole or torn at the grain.
    pub fn torn(
        &self,
        grain_bytes: usize,
        seed: u64,
        samples: usize,
    ) -> impl Iterator<Item = Image> + '_ {
        let mut stream = Stream::new(seed, 1);
        (0..samples).map(move |_| {
            self.image(|_| match stream.below(4) {
                0 => Survival::Lost,
                1 => Survival::Whole,
                _more => Survival::Torn { grain_bytes, seed: stream.next() },
            })
        })
    }
}

/// The parts of a write that survive: some of its sectors, never all of several.
pub(super) fn torn(patch: &Patch, grain_bytes: usize, stream: &mut Stream) -> Vec<Patch> {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(rest) = patch.bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let offset = patch.offset.saturating_add(at);
        let to_boundary = offset
            .checked_next_multiple_of(grain_bytes)
            .and_then(|boundary| boundary.checked_sub(offset))
            .filter(|bytes| *bytes > 0)
            .unwrap_or(grain_bytes);
        let len = to_boundary.min(rest.len());
        parts.push(Patch { offset, bytes: rest.iter().take(len).copied().collect() });
        at = at.saturating_add(len);
    }
    if parts.len() > 1 {
        let lost = stream.index(parts.len());
        let mut number = 0_usize;
        parts.retain(|_| {
            let kept = number != lost && stream.below(2) == 0;
            number = number.saturating_add(1);
            kept
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn point(loose: usize) -> CrashPoint {
        let write = |number: usize| Late {
            file: FileId(1),
            patch: Patch { offset: number * 8, bytes: vec![0xff; 8] },
            is_loose: true,
        };
        CrashPoint::new(
            Image::from([(FileId(1), vec![0; loose * 8])]),
            (0..loose).map(write).collect(),
        )
    }

    #[test]
    fn few_loose_writes_give_every_subset_once() {
        for loose in 0..=6 {
            let images: BTreeSet<_> = point(loose).subsets(1, 3).collect();
            assert_eq!(images.len(), 1 << loose);
        }
    }

    #[test]
    fn what_is_synced_stands_over_older_writes_that_are_not() {
        let late = |byte, is_loose| {
            let patch = Patch { offset: 0, bytes: vec![byte] };
            Late { file: FileId(1), patch, is_loose }
        };
        let point = CrashPoint::new(Image::new(), vec![late(1, true), late(2, false)]);
        assert_eq!(point.loose_writes(), 1);
        for image in point.subsets(0, 0) {
            assert_eq!(image[&FileId(1)], [2]);
        }
    }

    #[test]
    fn many_loose_writes_give_none_all_and_samples() {
        let point = point(20);
        let images: Vec<_> = point.subsets(1, 50).collect();
        assert_eq!(images.len(), 52);
        assert!(images[0][&FileId(1)].iter().all(|byte| *byte == 0));
        assert!(images[1][&FileId(1)].iter().all(|byte| *byte == 0xff));
        assert!(images.iter().collect::<BTreeSet<_>>().len() > 45);
        assert_eq!(images, point.subsets(1, 50).collect::<Vec<_>>(), "the same seed");
        assert_ne!(images, point.subsets(2, 50).collect::<Vec<_>>());
    }

    #[test]
    fn torn_writes_tear_at_the_grain_of_the_file_and_lose_something() {
        let patch = Patch { offset: 700, bytes: vec![1; 2000] };
        for seed in 0..200 {
            let mut file = vec![0; 3000];
            for part in torn(&patch, 512, &mut Stream::new(seed, 0)) {
                part.apply(&mut file);
            }
            assert!(file.iter().filter(|byte| **byte == 1).count() < 2000, "something is lost");
            for (at, pair) in file.windows(2).enumerate() {
                let boundary = (at + 1) % 512 == 0 || at + 1 == 700 || at + 1 == 2700;
                assert!(pair[0] == pair[1] || boundary, "torn at {}", at + 1);
            }
        }
        let sector = Patch { offset: 512, bytes: vec![1; 512] };
        assert_eq!(torn(&sector, 512, &mut Stream::new(0, 0)), [sector], "one sector is atomic");
    }
}
