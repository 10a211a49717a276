//! The options of events, in the order of `--help`.

use super::option::{Group, Opt};
use super::value::Kind;

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Opt {
    Opt { name, flag: true, aliases: &[], kind, default, group: Group::Events, help }
}

pub(super) static EVENTS_LISTEN: Opt = flag(
    "events-listen",
    Kind::Address,
    "",
    "TCP address at which events are published (ZeroMQ PUB): what can be read in which tier. Without it nothing is published. An address that other hosts reach takes --events-curve-file.",
);
pub(super) static EVENTS_REPLAY_LISTEN: Opt = flag(
    "events-replay-listen",
    Kind::Address,
    "",
    "TCP address at which missed events are sent again (ZeroMQ ROUTER). Without it: the next port after --events-listen.",
);
pub(super) static EVENTS_SNAPSHOT_LISTEN: Opt = flag(
    "events-snapshot-listen",
    Kind::Address,
    "",
    "TCP address at which routers read everything that is held (HTTP). An address that other hosts reach takes --events-token-file. Without it snapshots are on the admin socket only.",
);
pub(super) static EVENTS_CURVE_FILE: Opt = flag(
    "events-curve-file",
    Kind::Path,
    "",
    "File of keys (mode 0600) by which both sockets of events are encrypted and let in who is on its list: a line `server PUBLIC SECRET` and lines `client PUBLIC`.",
);
pub(super) static EVENTS_TOKEN_FILE: Opt = flag(
    "events-token-file",
    Kind::Path,
    "",
    "File (mode 0600) with the token, at least 16 characters, that --events-snapshot-listen asks for as `Authorization: Bearer`.",
);
pub(super) static HOST_ID: Opt = flag(
    "host-id",
    Kind::Text,
    "",
    "Name of this host in events and in etcd; no other host may have it. Without it: the host's name.",
);
pub(super) static ADVERTISE: Opt = flag(
    "advertise",
    Kind::Text,
    "",
    "Addresses and names, separated by commas, by which others reach this host; the first one is in the endpoints. Without it: the address of --events-listen, or the host's name if that is all addresses.",
);
pub(super) static ETCD_ENDPOINT: Opt = flag(
    "etcd-endpoint",
    Kind::Text,
    "",
    "HOST, HOST:PORT or URL of the etcd in which the daemon registers so that routers find it; several members separated by commas. Without it nothing is registered.",
);
pub(super) static ETCD_CA_FILE: Opt = flag(
    "etcd-ca-file",
    Kind::Path,
    "",
    "File of certificates (PEM) that the one of etcd has to come from, in place of those that the system trusts.",
);
pub(super) static ETCD_CERT_FILE: Opt =
    flag("etcd-cert-file", Kind::Path, "", "File with the certificate (PEM) that etcd is shown.");
pub(super) static ETCD_KEY_FILE: Opt =
    flag("etcd-key-file", Kind::Path, "", "File with its key (PEM).");
pub(super) static ETCD_USER: Opt = flag(
    "etcd-user",
    Kind::Text,
    "",
    "User of etcd, if it asks for one. The password is in a file, or in the variable INFERA_ETCD_PASSWORD.",
);
pub(super) static ETCD_PASSWORD_FILE: Opt =
    flag("etcd-password-file", Kind::Path, "", "File with the user's password.");
pub(super) static KVD_PREFIX: Opt =
    flag("kvd-prefix", Kind::Text, "/infera/kvd/", "Folder of the daemons' records in etcd.");

/// All of them.
pub(super) static EVENTS: [&Opt; 14] = [
    &EVENTS_LISTEN,
    &EVENTS_REPLAY_LISTEN,
    &EVENTS_SNAPSHOT_LISTEN,
    &EVENTS_CURVE_FILE,
    &EVENTS_TOKEN_FILE,
    &HOST_ID,
    &ADVERTISE,
    &ETCD_ENDPOINT,
    &ETCD_CA_FILE,
    &ETCD_CERT_FILE,
    &ETCD_KEY_FILE,
    &ETCD_USER,
    &ETCD_PASSWORD_FILE,
    &KVD_PREFIX,
];
