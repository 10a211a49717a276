//! `clear`: blocks are forgotten. Asks first.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgGroup, Args};
use kvd_client::{ClearScope, Namespace};

use crate::exit::codes;
use crate::sockets::Sockets;
use crate::text;
use crate::wrong_usage::WrongUsage;

#[derive(Debug, Args)]
// A group of the struct itself would hold every field: `--yes` alone would do for a scope.
#[group(skip)]
#[command(group = ArgGroup::new("scope").required(true).args(["everything", "model"]))]
#[command(after_help = codes!("0 cleared, 1 not, or not confirmed by any device"))]
pub(crate) struct Clear {
    /// Forget all blocks of all models
    #[arg(long)]
    everything: bool,
    /// Forget blocks of this model
    #[arg(long)]
    model: Option<String>,
    /// Of the model, only blocks with this compatibility key
    #[arg(long, requires = "model")]
    compat_key: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(sockets: &Sockets, clear: &Clear) -> Result<ExitCode> {
    let (scope, called) = match (&clear.model, &clear.compat_key) {
        (None, _) => (ClearScope::Everything, "everything".to_owned()),
        (Some(model), None) => (ClearScope::Model(model), format!("all of model {model:?}")),
        (Some(model), Some(compat_key)) => (
            ClearScope::Namespace(Namespace { model, compat_key }),
            format!("model {model:?}, compatibility key {compat_key:?}"),
        ),
    };
    if !clear.yes {
        if !io::stdin().is_terminal() {
            let problem = format!(
                "standard input is no terminal, so nobody can be asked: give --yes to clear {called}"
            );
            return Err(WrongUsage(problem).into());
        }
        write!(io::stderr(), "Clear {called}? Engines will compute it anew. [y/N] ")?;
        if !is_confirmed(&mut io::stdin().lock())? {
            writeln!(io::stderr(), "nothing cleared")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let rows = sockets.lean_client().clear(scope)?;
    writeln!(io::stdout(), "blocks cleared: {}", text::count(rows))?;
    Ok(ExitCode::SUCCESS)
}

fn is_confirmed(answers: &mut impl BufRead) -> Result<bool> {
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, expected) in
            [("y\n", true), ("yes\n", true), ("\n", false), ("", false), ("n\n", false)]
        {
            assert_eq!(is_confirmed(&mut answer.as_bytes()).expect("answered"), expected);
        }
    }
}
