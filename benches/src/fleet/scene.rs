//! A fleet with a workload.

use std::path::Path;

use super::outcome::{Figures, Outcome};
use super::router::Policy;
use super::workload::Workload;
use super::workload::agentic::{self, Agents};
use super::workload::conversation::{self, Conversations};
use super::world::World;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// The shared trace.
    Conversations(conversation::Shape),
    /// Agents.
    Agents(agentic::Shape),
}

/// A fleet with a workload.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Its name.
    pub name: &'static str,
    /// Hosts, and workers on each.
    pub fleet: [usize; 2],
    /// What is asked.
    pub asked: Asked,
}

/// The scenes.
pub const SCENES: [Scene; 4] = [
    Scene {
        name: "trace-4x4",
        fleet: [4, 4],
        asked: Asked::Conversations(conversation::Shape {
            requests: 12_031,
            copies: 1,
            speed: 2.0,
        }),
    },
    Scene {
        name: "agentic-4x4",
        fleet: [4, 4],
        asked: Asked::Agents(agentic::Shape {
            counted: [300.0, 900.0],
            kinds: 24,
            per_second: 0.4,
        }),
    },
    Scene {
        name: "trace-200x8",
        fleet: [200, 8],
        asked: Asked::Conversations(conversation::Shape {
            requests: 3000,
            copies: 100,
            speed: 2.0,
        }),
    },
    Scene {
        name: "agentic-200x8",
        fleet: [200, 8],
        asked: Asked::Agents(agentic::Shape {
            counted: [110.0, 170.0],
            kinds: 400,
            per_second: 75.0,
        }),
    },
];

impl Scene {
    /// The same with so many times as many requests a second.
    #[must_use]
    pub fn under(mut self, load: f64) -> Self {
        match &mut self.asked {
            Asked::Conversations(shape) => shape.speed *= load,
            Asked::Agents(shape) => shape.per_second *= load,
        }
        self
    }

    /// Lets a policy work.
    ///
    /// # Errors
    /// The trace cannot be read, or a request was lost.
    pub fn run(&self, policy: Policy, trace: &Path, seed: u64) -> anyhow::Result<Figures> {
        let mut workload: Box<dyn Workload> = match self.asked {
            Asked::Conversations(shape) => Box::new(Conversations::load(trace, shape, seed)?),
            Asked::Agents(shape) => Box::new(Agents::new(shape, seed)),
        };
        let counted = workload.counted();
        let outcome: Outcome = World::new(policy, self.fleet, seed, &mut *workload).run();
        anyhow::ensure!(outcome.is_whole, "a request or an event was lost");
        Ok(outcome.figures(counted))
    }
}
