//! Hints by HTTP.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use kvd_proto::pack::Array;
use kvd_proto::v1::Request;
use kvd_proto::v1::prefetch_hint::PrefetchHint;
use kvd_proto::v1::stats::Stats;

use super::super::prefetch::BODY_BYTES_MAX;
use super::{NAMESPACE, Rig};

/// In front of a message on the daemon's socket, and not here: its length.
const PREFIX_BYTES: usize = 4;

fn post(rig: &Rig, body: &[u8]) -> u16 {
    let mut stream = UnixStream::connect(rig.socket()).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/prefetch HTTP/1.1\r\nHost: kvd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    // What is too long is refused before all of it is sent.
    drop(stream.write_all(&[head.as_bytes(), body].concat()));
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
}

fn body_of(request: &Request<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    request.encode(&mut frame);
    frame.split_off(PREFIX_BYTES)
}

#[test]
fn a_hint_reaches_the_store_key_by_key() {
    let rig = Rig::new(&[]);
    let keys: Vec<Vec<u8>> = (0..600_u32).map(|key| key.to_be_bytes().to_vec()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let hint = PrefetchHint { keys: Array::Slice(&keys), namespace: NAMESPACE, deadline_ms: 1_000 };
    let hinted = || rig.daemon.brain.inspect(|store, _| store.stats().disk.totals.hints_total);
    assert_eq!(post(&rig, &body_of(&Request::PrefetchHint(hint))), 202);
    assert_eq!(hinted(), 600);
    // Nothing else is taken, and nothing of what is wrong.
    let whole = body_of(&Request::PrefetchHint(hint));
    for wrong in [&b""[..], b"{}", &whole[..whole.len() - 1], &body_of(&Request::Stats(Stats))] {
        assert_eq!(post(&rig, wrong), 400);
    }
    assert_eq!(post(&rig, &vec![0; BODY_BYTES_MAX + 1]), 413);
    assert_eq!(hinted(), 600);
    assert_eq!(rig.ask("GET", "/v1/prefetch").0, 405);
}
