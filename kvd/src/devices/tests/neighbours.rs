//! Blocks move without touching what lies beside them in the arena.

use kvd_disk::sim::SimConfig;
use kvd_proto::retention::Retention;
use kvd_store::Durability;

use super::{Rig, name_of};

/// Blocks of many lengths below those that are laid out on pages: three times the arena.
const BLOCKS: u64 = 600;

fn bytes_of(key: u64) -> Vec<u8> {
    let len = 3_000 + key * 5;
    (0..len).map(|at| u8::try_from((key * 31 + at / 7) % 255 + 1).unwrap()).collect()
}

#[test]
fn a_small_block_that_begins_on_a_page_leaves_its_neighbour_alone() {
    let mut rig = Rig::new(Durability::Relaxed, SimConfig::from_seed(5));
    for key in 0..BLOCKS {
        rig.put(&name_of(key), &bytes_of(key), Retention::Long);
        rig.settle();
    }
    let mut key = 1;
    for _ in 0..4_000 {
        // Some again and again, so that they stay while others come.
        key = (key * 69_069 + 1) % 0x1_0000_0000;
        let key = if key & 0x100 == 0 { (key >> 12) % BLOCKS } else { (key >> 12) % 40 };
        if let Ok(bytes) = rig.get(&name_of(key)) {
            assert!(bytes == bytes_of(key), "wrong bytes of block {key}");
        }
    }
    assert!(rig.stats().totals.loads_total > 1_000, "{:?}", rig.stats());
}
