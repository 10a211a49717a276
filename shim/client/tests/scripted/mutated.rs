//! Answers with flipped bytes: whatever they become, the client neither panics nor hangs, and what
//! it takes for a view lies inside the arena.

use std::io::Write;
use std::time::Duration;

use crate::daemon::{SPACE, ScriptedDaemon, accept, ack, arena, fetched};
use kvd_proto::v2::Reply;

const ROUNDS: u64 = 400;

/// A small generator; the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

#[test]
fn no_answer_makes_the_client_panic_or_hang() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        for round in 0..ROUNDS {
            let mut session = accept(listener);
            session.hear_hello();
            session.send(&Reply::HelloAck(ack(1, round, Some(arena.bytes()))));
            session.pass(arena.descriptor());
            let (id, _) = session.hear_fetch();
            let mut frame = fetched(id, 1, &[0, 64, 128], 8);
            for _ in 0..=dice.below(3) {
                let at = dice.below(frame.len());
                frame[at] = u8::try_from(dice.below(256)).unwrap();
            }
            frame.truncate(dice.below(2 * frame.len()).max(1));
            // The client may have left by now.
            drop(session.stream.write_all(&frame));
        }
    });
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    for _ in 0..ROUNDS {
        // A new client each time: a cut answer must not be completed by the next round's.
        let client = daemon.client();
        let answer = client.fetch(SPACE, &keys, false, Duration::from_secs(20));
        assert_eq!(answer.items.len(), keys.len());
        for view in answer.items.iter().flatten() {
            assert!(view.to_vec().len() <= arena_bytes());
        }
    }
    daemon.end();
}

fn arena_bytes() -> usize {
    usize::try_from(crate::daemon::ARENA_BYTES).unwrap()
}
