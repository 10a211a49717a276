//! Random lives of a daemon with devices, against what can be known from the outside: bytes are
//! those that were stored last, what was replaced or cleared stays away, what was promised or
//! acknowledged as durable is there.

mod judge;
mod oracle;
mod run;
mod step;

use kvd_store::Durability;
use proptest::prelude::*;

use run::{Setting, run};
use step::step;

fn setting() -> impl Strategy<Value = Setting> {
    let durability =
        prop_oneof![Just(Durability::Relaxed), Just(Durability::Group), Just(Durability::Strict)];
    (durability, 1..3_u8, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(durability, devices, roomy, second_touch, budget)| Setting {
            durability,
            devices,
            roomy,
            second_touch,
            budget,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_life_makes_it_lie(setting in setting(), steps in proptest::collection::vec(step(), 1..160)) {
        run(setting, &steps);
    }
}
