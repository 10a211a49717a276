//! NUMA: on which memory nodes the arena's pages are placed (`mbind`), set before the first touch.

#![expect(unsafe_code, reason = "the mbind system call, which libc does not wrap")]

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use nix::errno::Errno;

use crate::region::Region;

/// Where the arena's pages go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NumaPolicy {
    /// Page by page in turn over all nodes that have memory: no engine is much worse off than
    /// another.
    #[default]
    Interleave,
    /// All on one node: for hosts whose engines all sit there.
    Bind(u32),
}

/// A policy that could not be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("NUMA policy {0:?}: expected \"interleave\" or \"bind:N\", N at most {max}", max = NODE_MAX)]
pub struct UnknownPolicy(pub String);

/// The largest node number that is accepted (the kernel's own limit is 1023).
pub const NODE_MAX: u32 = 1023;

impl FromStr for NumaPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "interleave" {
            return Ok(Self::Interleave);
        }
        text.strip_prefix("bind:")
            .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|number| number.parse().ok())
            .filter(|node| *node <= NODE_MAX)
            .map(Self::Bind)
            .ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

impl fmt::Display for NumaPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interleave => out.write_str("interleave"),
            Self::Bind(node) => write!(out, "bind:{node}"),
        }
    }
}

/// Reads `"interleave"` or `"bind:N"`.
///
/// # Errors
/// If the text is neither, or N is above [`NODE_MAX`].
pub fn parse(text: &str) -> Result<NumaPolicy, UnknownPolicy> {
    text.parse()
}

/// The nodes that have memory, or `None` where the kernel does not say (no NUMA, no sysfs).
///
/// `sys` is where sysfs is mounted: `/sys`, except in tests.
#[must_use]
pub fn nodes_with_memory(sys: &Path) -> Option<Vec<u32>> {
    let list = fs::read_to_string(sys.join("devices/system/node/has_memory")).ok()?;
    parse_list(list.trim())
}

/// Reads the kernel's list form: `0-3,5`.
fn parse_list(list: &str) -> Option<Vec<u32>> {
    let mut nodes = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last > NODE_MAX {
            return None;
        }
        nodes.extend(first..=last);
    }
    Some(nodes)
}

/// Applies the policy to the whole region. It belongs to the file: pages that a client touches
/// follow it too.
///
/// `nodes` are the nodes that have memory. With fewer than two, interleaving is what happens anyway.
pub(crate) fn apply(region: &Region, policy: NumaPolicy, nodes: &[u32]) -> Result<(), Errno> {
    let (mode, chosen) = match policy {
        NumaPolicy::Interleave if nodes.len() < 2 => return Ok(()),
        NumaPolicy::Interleave => (libc::MPOL_INTERLEAVE, nodes),
        NumaPolicy::Bind(ref node) => (libc::MPOL_BIND, std::slice::from_ref(node)),
    };
    let mask = NodeMask::of(chosen);
    // SAFETY: the range is mapped as long as `region` lives, the mask has `NodeMask::BITS` bits and
    // outlives the call, and a placement policy changes no byte.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            region.base().as_ptr(),
            region.bytes(),
            mode,
            mask.words.as_ptr(),
            // The kernel reads one bit less than it is told.
            NodeMask::BITS + 1,
            0,
        )
    };
    Errno::result(result).map(drop)
}

/// One bit for each node, as `mbind` wants it.
struct NodeMask {
    words: [u64; Self::WORDS],
}

impl NodeMask {
    const BITS: usize = NODE_MAX as usize + 1;
    const WORDS: usize = Self::BITS / 64;

    fn of(nodes: &[u32]) -> Self {
        let mut words = [0; Self::WORDS];
        for node in nodes.iter().filter(|node| **node <= NODE_MAX) {
            words[*node as usize / 64] |= 1 << (node % 64);
        }
        Self { words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_as_they_print() {
        for policy in [NumaPolicy::Interleave, NumaPolicy::Bind(0), NumaPolicy::Bind(NODE_MAX)] {
            assert_eq!(parse(&policy.to_string()), Ok(policy));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "bind", "bind:", "bind:-1", "bind:+1", "bind:1024", "bind: 1", "Interleave"]
        {
            assert_eq!(parse(text), Err(UnknownPolicy(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(parse_list("0"), Some(vec![0]));
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("0-4000000000"), None);
        assert_eq!(parse_list("a-b"), None);
    }

    #[test]
    fn masks_have_one_bit_for_each_node() {
        let mask = NodeMask::of(&[0, 5, 64, 1023]);
        assert_eq!(mask.words[0], 0b10_0001);
        assert_eq!(mask.words[1], 1);
        assert_eq!(mask.words[15], 1 << 63);
        assert_eq!(mask.words[2..15], [0; 13]);
    }
}
