//! Bytes of a ledger that are not what they were.

use kvd_store::{Effects, LedgerFault, LedgerHeader, Store, Timestamp};

use crate::image;
use crate::life::{ARENA, Life, adopt, config};

fn lived() -> Life {
    let mut life = Life::new(77);
    for _ in 0..120 {
        life.step();
    }
    life
}

#[test]
fn no_flipped_bit_invents_a_row_or_loses_a_right() {
    let life = lived();
    let mut effects = Effects::default();
    let (store, whole) = adopt(&life.image, life.now, &mut effects).unwrap();
    let expected = life.rows_in(&store);
    assert!(whole.rights > 3 && whole.rows > 3, "{whole:?}");
    let (mut refused, mut dropped) = (0, 0);
    let mut image = life.image.clone();
    for at in 0..image.len() {
        // Of pieces where nothing stands one byte in seven, so that each place in a slot of any size gets its turn.
        let is_blank = life.image[at / 64 * 64..][..64].iter().all(|&byte| byte == 0);
        if is_blank && !at.is_multiple_of(7) {
            continue;
        }
        let bit = 1 << (at % 8);
        image[at] ^= bit;
        match adopt(&image, life.now, &mut effects) {
            Ok((store, adopted)) => {
                store.assert_consistent();
                assert_eq!(adopted.rights, whole.rights, "byte {at}");
                let rows = life.rows_in(&store);
                assert!(
                    rows.iter().all(|(name, row)| expected.get(name) == Some(row)),
                    "byte {at}"
                );
                dropped += u64::from(rows.len() < expected.len());
            }
            Err(_) => refused += 1,
        }
        image[at] ^= bit;
    }
    assert!(refused > 200 && dropped > 200, "{refused} refused, {dropped} with less");
}

#[test]
fn a_ledger_of_anything_else_is_not_believed() {
    let life = lived();
    let mut effects = Effects::default();
    let mut image = life.image.clone();
    image[8] = 9;
    let fault = adopt(&image, 0, &mut effects).map(|_| ());
    assert_eq!(fault, Err(LedgerFault::Version { found: 9 }));
    let fault = adopt(&[], 0, &mut effects).map(|_| ());
    assert_eq!(fault, Err(LedgerFault::TooShort { bytes: 0 }));
    let cut = &life.image[..life.image.len() - 1];
    let fault = adopt(cut, 0, &mut effects).map(|_| ());
    assert_eq!(fault, Err(LedgerFault::TooShort { bytes: cut.len() as u64 }));
    assert_eq!(adopt(&[0; 1 << 16], 0, &mut effects).map(|_| ()), Err(LedgerFault::NoLedger));
    let mut other = config();
    other.arena_bytes = 2 * ARENA;
    let none = std::collections::BTreeSet::new();
    let found = Store::adopt(other, life.image.as_slice(), &none, Timestamp(0), &mut effects);
    let expected = LedgerFault::OtherArena { found: ARENA, expected: 2 * ARENA };
    assert_eq!(found.map(|_| ()), Err(expected));
    let empty = image::fresh(ARENA, image::LAYOUT);
    assert!(LedgerHeader::decode(&empty).is_ok());
    let (_, adopted) = adopt(&empty, 0, &mut effects).unwrap();
    assert_eq!((adopted.rows, adopted.rights, adopted.sessions.len()), (0, 0, 0));
}
