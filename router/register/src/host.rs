//! By what names this host is known: which of them others are told, and which of the daemons lives here.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, UdpSocket};

use kvd_proto::events::Registration;
use nix::ifaddrs::getifaddrs;

/// Names and addresses of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// Those that the system knows, and the one that others are told.
    pub(crate) fn of_this_host(told: &str) -> Self {
        let mut names = BTreeSet::from([told.trim_matches(['[', ']']).to_owned()]);
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            names.insert(name.trim().to_owned());
        }
        for interface in getifaddrs().into_iter().flatten() {
            let address = interface.address.and_then(|address| {
                let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
                v4.or_else(|| Some(IpAddr::from(address.as_sockaddr_in6()?.ip())))
            });
            // Every host has the loopback address: it tells none from another.
            names.extend(address.filter(|ip| !ip.is_loopback()).map(|ip| ip.to_string()));
        }
        Self(names)
    }

    /// The id of the one daemon that says it is here; nothing if none does, or several do.
    pub(crate) fn daemon(&self, daemons: &[Registration]) -> Option<String> {
        let is_here = |daemon: &&Registration| {
            let node = daemon.node_name.iter();
            daemon.addrs.iter().chain(node).any(|name| self.0.contains(name))
        };
        let here = daemons.iter().filter(is_here).map(|daemon| &daemon.host_id);
        let here: BTreeSet<&String> = here.filter(|id| !id.is_empty()).collect();
        let mut here = here.into_iter();
        here.next().filter(|_| here.next().is_none()).cloned()
    }
}

/// The address that packets to `peer` (`HOST:PORT`) leave from. Nothing is sent.
pub(crate) fn facing(peer: &str) -> io::Result<IpAddr> {
    let from = if peer.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(from)?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// A host as it stands in a URL.
pub(crate) fn in_url(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

/// Whether others can't mean this host by that name.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// Whether this stands for all addresses of a host.
pub(crate) fn is_any(host: &str) -> bool {
    matches!(host, "" | "0.0.0.0" | "::" | "[::]" | "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(id: &str, addrs: &[&str], node: Option<&str>) -> Registration {
        Registration {
            host_id: id.to_owned(),
            addrs: addrs.iter().map(|name| (*name).to_owned()).collect(),
            node_name: node.map(str::to_owned),
            ..Registration::default()
        }
    }

    #[test]
    fn the_one_daemon_that_is_here_is_found() {
        let names = Names(["10.0.0.1", "h1"].map(str::to_owned).into());
        let (here, there) =
            (daemon("a", &["10.0.0.1"], None), daemon("b", &["10.0.0.2"], Some("h2")));
        assert_eq!(names.daemon(&[here.clone(), there.clone()]), Some("a".to_owned()));
        assert_eq!(names.daemon(&[daemon("n", &[], Some("h1"))]), Some("n".to_owned()));
        assert_eq!(names.daemon(&[there]), None);
        assert_eq!(names.daemon(&[here.clone(), daemon("c", &["h1"], None)]), None, "ambiguous");
        assert_eq!(names.daemon(&[here.clone(), here]), Some("a".to_owned()), "one twice");
    }

    #[test]
    fn this_host_is_known_by_what_others_are_told() {
        let names = Names::of_this_host("[fd00::1]");
        assert!(names.0.contains("fd00::1"), "{names:?}");
        assert!(!names.0.contains("127.0.0.1"), "{names:?}");
    }

    #[test]
    fn hosts_are_told_apart() {
        assert!(is_loopback("127.0.0.1") && is_loopback("[::1]") && is_loopback("localhost"));
        assert!(!is_loopback("10.0.0.1") && !is_loopback("h"));
        assert!(is_any("0.0.0.0") && is_any("::") && !is_any("h"));
        assert_eq!(
            (in_url("::1"), in_url("[::1]"), in_url("h")),
            ("[::1]".into(), "[::1]".into(), "h".into())
        );
        assert!(facing("127.0.0.1:1").unwrap().is_loopback());
    }
}
