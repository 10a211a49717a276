//! The one task runner: `cargo xtask <task>`. Each task is one file of this folder; `ci` runs them all, cheapest first.
//!
//! Nothing here installs anything: `scripts/test.sh` does that, and then calls `cargo xtask ci`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a task runner talks on its standard output")]

mod c_header;
mod ci;
mod command;
mod crash;
mod e2e;
mod fmt;
mod generate;
mod lint;
mod loom;
mod parts;
mod python;
mod test;
mod tidy;
mod units;
mod upgrade;
mod vllm;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a task is given: where the checkout lies, and the words that stood after the task's name.
#[derive(Debug)]
struct Context {
    root: PathBuf,
    extra: Vec<String>,
}

/// A task, as the help shows it and as `ci` runs it.
struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(&Context) -> anyhow::Result<()>,
}

/// Every task, in the order of the help.
const TASKS: &[Task] = &[
    Task { name: "tidy", about: "the rules that no compiler knows", run: tidy::run },
    Task { name: "fmt", about: "rustfmt, as a check (`fmt --fix` rewrites)", run: fmt::run },
    Task { name: "lint", about: "clippy and rustdoc, warnings denied", run: lint::run },
    Task { name: "units", about: "units, users and links for systemd", run: units::run },
    Task { name: "test", about: "unit, property and golden tests, doctests", run: test::run },
    Task { name: "loom", about: "models of the shared-memory orders", run: loom::run },
    Task { name: "crash", about: "crashes of the disk tier, simulated", run: crash::run },
    Task { name: "e2e", about: "the real binaries under the Rust harness", run: e2e::run },
    Task { name: "upgrade", about: "an earlier build's state, and back", run: upgrade::run },
    Task { name: "parts", about: "the disk tier on real devices that fail", run: parts::run },
    Task { name: "py", about: "protocol 1 and the vLLM connector (pytest)", run: python::run },
    Task { name: "wheel", about: "the Python package, as it is installed", run: wheel::run },
    Task { name: "vllm", about: "real vLLM processes on the real daemon", run: vllm::run },
    Task { name: "ci", about: "all of the above, cheapest first, stops at red", run: ci::run },
    Task {
        name: "gen",
        about: "write the C header and the protocol's source hash",
        run: generate::run,
    },
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "help".to_owned());
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        return help(&name);
    };
    let extra = words.filter(|word| word != "--").collect();
    let context = Context { root: checkout(), extra };
    match (task.run)(&context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            println!("{}: {trouble:#}", task.name);
            ExitCode::FAILURE
        }
    }
}

/// The root of the checkout that this binary was built from.
fn checkout() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

fn help(asked: &str) -> ExitCode {
    println!("cargo xtask <task> [arguments for the tool behind it]\n");
    for task in TASKS {
        println!("  {:<7} {}", task.name, task.about);
    }
    if asked == "help" || asked == "--help" || asked == "-h" {
        return ExitCode::SUCCESS;
    }
    println!("\nno task is called {asked:?}");
    ExitCode::from(2)
}
