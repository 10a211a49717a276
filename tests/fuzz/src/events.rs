//! Any bytes as a payload of events, and as a snapshot that arrives in pieces.

use kvd_proto::events::{Batch, BatchWriter, Event, SnapshotReader};

/// A payload that anybody published.
pub fn payload(bytes: &[u8]) {
    snapshot(bytes);
    let Ok(batch) = Batch::decode(bytes) else {
        return;
    };
    let mut events = batch.events();
    let found: Vec<Event<'_>> = events.by_ref().collect();
    let skipped = events.skipped();
    let refused = skipped.malformed as usize + skipped.unknown_types as usize;
    assert_eq!(found.len() + refused, batch.len() as usize, "every event is counted");
    let mut out = Vec::new();
    let mut writer = BatchWriter::begin(&mut out, batch.timestamp);
    found.iter().for_each(|event| writer.push(event));
    writer.finish();
    let again = Batch::decode(&out).expect("our own payload");
    let mut events = again.events();
    let mut told = Vec::new();
    for event in events.by_ref() {
        event.encode(&mut told);
    }
    let mut first = Vec::new();
    found.iter().for_each(|event| event.encode(&mut first));
    assert_eq!(first, told, "decoding loses something");
    assert_eq!(events.skipped().malformed + events.skipped().unknown_types, 0);
}

/// However a stream is cut, it has the same items.
fn snapshot(bytes: &[u8]) {
    let of_pieces = |len: usize| {
        let mut reader = SnapshotReader::new();
        let mut items = Vec::new();
        for piece in bytes.chunks(len) {
            reader.push(piece);
            loop {
                match reader.next_item() {
                    Ok(Some(item)) => items.push(format!("{item:?}")),
                    Ok(None) => break,
                    Err(_malformed) => return (items, true),
                }
            }
        }
        (items, reader.is_inside_an_item())
    };
    let whole = of_pieces(bytes.len().max(1));
    assert_eq!(of_pieces(7).0, whole.0);
}
