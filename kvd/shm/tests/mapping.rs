//! Bytes in and out of a mapped arena, from both sides, against a plain vector.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;

use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::header::{self, Header};
use kvd_shm::mapping::{Access, Mapping};
use kvd_shm::numa::NumaPolicy;
use proptest::prelude::*;

const BYTES: u64 = 1 << 20;

fn arena() -> Arena {
    let numa = NumaPolicy::Interleave;
    Arena::create(ArenaConfig { bytes: BYTES, hugetlb: false, numa, pin: false }).unwrap()
}

fn client(arena: &Arena, access: Access) -> Arc<Mapping> {
    let file = arena.descriptor().try_clone_to_owned().unwrap();
    Arc::new(Mapping::map(file, BYTES, access).unwrap())
}

/// Writes of any length at any place, some by the daemon and some by a client.
fn writes() -> impl Strategy<Value = Vec<(bool, usize, usize, u8)>> {
    let size = usize::try_from(BYTES).unwrap();
    let length = prop_oneof![0..300_usize, 0..20_000_usize, 60_000..200_000_usize];
    let write = (any::<bool>(), 0..size, length, any::<u8>())
        .prop_map(move |(daemon, at, len, salt)| (daemon, at, len.min(size - at), salt));
    prop::collection::vec(write, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn both_sides_see_what_either_wrote(writes in writes(), skew in 0..64_usize) {
        let arena = arena();
        let client = client(&arena, Access::ReadWrite);
        let mut model = vec![0_u8; usize::try_from(BYTES).unwrap()];
        for (by_daemon, at, len, salt) in writes {
            let bytes: Vec<u8> =
                (0..len).map(|index| (index % 253).to_le_bytes()[0].wrapping_add(salt)).collect();
            let writer = if by_daemon { arena.mapping() } else { &client };
            writer.copy_in(at as u64, &bytes);
            model[at..at + len].copy_from_slice(&bytes);
            let reader = if by_daemon { &client } else { arena.mapping() };
            let mut seen = vec![0xee; len + skew];
            reader.copy_out(at as u64, &mut seen[skew..]);
            prop_assert!(seen[skew..] == bytes, "{len} bytes at {at}");
            prop_assert!(seen[..skew].iter().all(|byte| *byte == 0xee));
        }
        prop_assert!(client.slice(0, model.len()).to_vec() == model);
    }
}

#[test]
fn a_slice_outlives_arena_and_mapping() {
    let arena = arena();
    arena.mapping().copy_in(4096, b"still here");
    let mapping = client(&arena, Access::Read);
    let slice = mapping.slice(4096, 10);
    drop((arena, mapping));
    assert_eq!(slice.to_vec(), b"still here");
    assert_eq!((slice.offset(), slice.len(), slice.is_empty()), (4096, 10, false));
    let other = slice.clone();
    drop(slice);
    let mut bytes = [0; 10];
    other.copy_to(&mut bytes);
    assert_eq!(&bytes, b"still here");
}

#[test]
fn empty_ranges_are_fine_anywhere_inside() {
    let arena = arena();
    arena.mapping().copy_in(BYTES, &[]);
    arena.mapping().copy_out(0, &mut []);
    assert!(arena.mapping().slice(BYTES, 0).to_vec().is_empty());
}

#[test]
#[should_panic(expected = "leaves the mapping")]
fn a_copy_in_beyond_the_end_is_a_bug() {
    arena().mapping().copy_in(BYTES - 1, b"xy");
}

#[test]
#[should_panic(expected = "leaves the mapping")]
fn a_copy_out_whose_end_wraps_is_a_bug() {
    arena().mapping().copy_out(u64::MAX, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "leaves the mapping")]
fn a_slice_beyond_the_end_is_a_bug() {
    drop(arena().mapping().slice(BYTES - 9, 10));
}

#[test]
#[should_panic(expected = "read-only")]
fn writing_through_a_read_only_mapping_is_a_bug() {
    client(&arena(), Access::Read).copy_in(0, b"x");
}

#[test]
#[should_panic(expected = "read-only")]
fn publishing_through_a_read_only_mapping_is_a_bug() {
    header::publish(&client(&arena(), Access::Read), 16, 2, 0);
}

#[test]
fn headers_are_laid_out_for_protocol_1_readers() {
    let arena = arena();
    let client = client(&arena, Access::Read);
    let payload = 4096_u64;
    arena.mapping().copy_in(payload - 16, &[0xab; 16]);
    header::write_odd(arena.mapping(), payload, 7);
    assert_eq!(client.slice(payload - 16, 4).to_vec(), [7, 0, 0, 0]);
    assert_eq!(header::read(&client, payload).version, 7);
    arena.mapping().copy_in(payload, b"value");
    header::publish(arena.mapping(), payload, 0x0102_0304, 5);
    assert_eq!(
        client.slice(payload - 16, 16).to_vec(),
        [4, 3, 2, 1, 5, 0, 0, 0, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab]
    );
    assert_eq!(header::read(&client, payload), Header { version: 0x0102_0304, len: 5 });
}

#[test]
#[should_panic(expected = "no room for a header")]
fn a_payload_at_the_very_start_has_no_header() {
    header::write_odd(arena().mapping(), 15, 1);
}

#[test]
#[should_panic(expected = "not aligned")]
fn a_header_is_aligned() {
    header::write_odd(arena().mapping(), 18, 1);
}

#[test]
#[should_panic(expected = "means stable")]
fn an_even_version_does_not_mark_a_write() {
    header::write_odd(arena().mapping(), 16, 2);
}

#[test]
#[should_panic(expected = "means being written")]
fn an_odd_version_does_not_publish() {
    header::publish(arena().mapping(), 16, 3, 0);
}
