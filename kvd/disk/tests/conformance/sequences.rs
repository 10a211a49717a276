//! Any sequence of operations leaves what a plain vector would hold.

use kvd_disk::Operation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::rig::{FILE, Kind, Rig, bytes_of, finish, owned, pattern};

#[derive(Clone, Debug)]
enum Does {
    Write { at: usize, len: usize, salt: u64, in_arena: bool },
    Read { at: usize, len: usize, in_arena: bool },
    Sync,
}

const CELL: usize = 8192;

const CELLS: usize = 16;

/// One operation a cell at most: what overlaps may happen in any order.
fn batches() -> impl Strategy<Value = Vec<Vec<Option<Does>>>> {
    let place = (0..CELL).prop_flat_map(|at| (Just(at), 0..=CELL - at));
    let does = prop_oneof![
        (place.clone(), any::<u64>(), any::<bool>())
            .prop_map(|((at, len), salt, in_arena)| { Does::Write { at, len, salt, in_arena } }),
        (place, any::<bool>()).prop_map(|((at, len), in_arena)| Does::Read { at, len, in_arena }),
        Just(Does::Sync),
    ];
    prop::collection::vec(prop::collection::vec(prop::option::of(does), CELLS), 1..12)
}

fn carry_out_batch(rig: &mut Rig, model: &mut [u8], batch: &[Option<Does>]) {
    let mut expected = Vec::new();
    for (cell, does) in batch.iter().enumerate() {
        let token = cell as u64;
        let memory = |rig: &Rig, bytes: &[u8], in_arena: bool| {
            if !in_arena {
                return owned(bytes);
            }
            let offset = (cell * 2 * CELL) as u64;
            rig.arena.copy_in(offset, bytes);
            rig.arena_memory(offset, bytes.len())
        };
        let operation = match does {
            None => continue,
            Some(Does::Sync) => Operation::sync(token, FILE),
            Some(Does::Write { at, len, salt, in_arena }) => {
                let (start, bytes) = (cell * CELL + at, pattern(*len, *salt));
                let memory = memory(rig, &bytes, *in_arena);
                model[start..start + len].copy_from_slice(&bytes);
                Operation::write(token, FILE, start as u64, memory)
            }
            Some(Does::Read { at, len, in_arena }) => {
                let start = cell * CELL + at;
                expected.push((token, model[start..start + len].to_vec()));
                let memory = memory(rig, &vec![0xee; *len], *in_arena);
                Operation::read(token, FILE, start as u64, memory)
            }
        };
        rig.disk.submit(operation).unwrap();
    }
    let mut done = finish(&mut *rig.disk);
    assert!(done.values().all(|done| done.result == Ok(())));
    for (token, expected) in expected {
        let read = done.remove(&token).unwrap().memory.unwrap();
        assert!(bytes_of(read) == expected, "read in cell {token}");
    }
}

pub(crate) fn any_sequence_agrees_with_a_plain_vector(kind: Kind) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let agrees = |batches: Vec<Vec<Option<Does>>>| {
        let mut rig = Rig::new(kind, CELLS);
        let mut model = pattern(CELLS * CELL, 1);
        rig.make(FILE, &model, 0);
        for batch in &batches {
            carry_out_batch(&mut rig, &mut model, batch);
        }
        assert!(rig.contents(FILE) == model);
        Ok(())
    };
    runner.run(&batches(), agrees).unwrap();
}
