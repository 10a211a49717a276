//! What may be typed.

use clap::{Parser, Subcommand};

use crate::commands::{
    bench, classify, clear, drain, dump_journal, events, get, ls, put, size, stat, top, verify, why,
};
use crate::sockets::Sockets;

/// Looks into and works with a running infera-kvd.
#[derive(Debug, Parser)]
#[command(name = "kvdctl", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) sockets: Sockets,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes, of every command; its own help says more:
  0  done
  1  failed: no daemon, a miss, a refusal, a damaged block
  2  wrong usage
  3  permission denied: by a socket, a folder or a file";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the daemon's figures
    Stat(stat::Stat),
    /// List stored blocks
    Ls(ls::Ls),
    /// Write one block to standard output or to a file; `why` explains a miss
    Get(get::Get),
    /// Store one block
    Put(put::Put),
    /// Forget blocks
    Clear(clear::Clear),
    Drain(drain::Drain),
    Classify(classify::Classify),
    Size(size::Size),
    Verify(verify::Verify),
    DumpJournal(dump_journal::DumpJournal),
    Events(events::Events),
    /// Explain whether a key is found, and if not, why
    Why(why::Why),
    /// Measure put, locate and get against the running daemon
    Bench(bench::Bench),
    /// Show who holds and does what, live
    Top(top::Top),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definitions_agree_with_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_wrong_is_wrong_usage() {
        for line in [
            "kvdctl",
            "kvdctl frobnicate",
            "kvdctl get",
            "kvdctl put 00",
            "kvdctl put 00 - --retention forever",
            "kvdctl put 00 - --ttl -1",
            "kvdctl put 00 - --ttl soon",
            "kvdctl clear",
            "kvdctl clear --everything --model m",
            "kvdctl clear --yes",
            "kvdctl clear -y --compat-key c",
            "kvdctl clear --compat-key c",
            "kvdctl ls --limit 0",
            "kvdctl ls --tier l1",
            "kvdctl stat --json --reference",
            "kvdctl bench --batch 0",
            "kvdctl bench --block-bytes 0",
            "kvdctl top --interval 0",
            "kvdctl drain --deadline 0",
            "kvdctl classify",
            "kvdctl size",
            "kvdctl size --model x --dtype int3",
            "kvdctl size --model x --tensor-parallel 0",
            "kvdctl verify",
            "kvdctl dump-journal",
            "kvdctl classify / --io-mode fast",
            "kvdctl drain --deadline soon",
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn what_is_right_is_understood() {
        for line in [
            "kvdctl stat --reference",
            "kvdctl stat --all",
            "kvdctl --socket /x stat",
            "kvdctl stat --socket=/x --admin-socket=/y",
            "kvdctl get 00ff --model m --compat-key c -o /tmp/x",
            "kvdctl put --text some-key file",
            "kvdctl put 00 - --retention long --ttl 0.5",
            "kvdctl clear --model m --compat-key c",
            "kvdctl clear --everything --yes",
            "kvdctl bench --block-bytes 2.5M",
            "kvdctl ls --prefix 0a --limit 5 --json",
            "kvdctl ls --tier l3",
            "kvdctl top --once",
            "kvdctl size --model /models/x --dtype fp8 --host-bytes 64G --disk-bytes 2T --json",
            "kvdctl verify /data --drop-bad --json",
            "kvdctl dump-journal /data --json",
            "kvdctl drain",
            "kvdctl classify /data --io-mode direct --json",
            "kvdctl drain --deadline 2m --json",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        for (line, code) in [("kvdctl --help", 0), ("kvdctl put --help", 0), ("kvdctl -V", 0)] {
            assert_eq!(parse(line).expect_err(line).exit_code(), code);
        }
    }
}
