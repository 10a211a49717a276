//! The store against a naive oracle: random inputs, every answer judged, the whole state checked
//! after every step.

#[path = "../fold/mod.rs"]
mod fold;
mod judge;
mod oracle;
mod run;
mod step;

use proptest::prelude::*;

use run::{Run, Sabotage};
use step::steps;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_answer_is_one_that_the_oracle_allows(steps in steps(150)) {
        let mut run = Run::new(Sabotage::None);
        for step in steps {
            run.step(&step);
        }
    }

    #[test]
    fn equal_inputs_have_equal_effects(steps in steps(100)) {
        let trace = |steps: &[step::Step]| {
            let mut run = Run::new(Sabotage::None);
            steps.iter().for_each(|step| run.step(step));
            run.trace
        };
        prop_assert_eq!(trace(&steps), trace(&steps));
    }
}

/// A twin of the oracle that forgets what it must not forget. If the judge lets that pass, its
/// verdicts mean nothing.
fn sabotaged(sabotage: Sabotage) -> bool {
    use proptest::test_runner::{Config, TestRunner};
    let config = Config { cases: 200, max_shrink_iters: 0, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        Config { failure_persistence: None, ..config },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = runner.run(&steps(150), |steps| {
        let mut run = Run::new(sabotage);
        steps.iter().for_each(|step| run.step(step));
        Ok(())
    });
    std::panic::set_hook(quiet);
    result.is_err()
}

#[test]
fn negative_controls_are_noticed() {
    assert!(sabotaged(Sabotage::ForgottenLease), "a forgotten lease passes");
    assert!(sabotaged(Sabotage::ForeignProcess), "a foreign process's rights pass");
    assert!(sabotaged(Sabotage::LostClass), "a wrong class passes");
    assert!(sabotaged(Sabotage::WrongReason), "a wrong reason passes");
}
