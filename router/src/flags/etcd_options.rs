//! The options that say where etcd is and how one gets in. The sidecar and the daemon have the same.

use kvd_etcd::Password;

use super::option::{Group, Opt};
use super::table::ROW;

pub(super) static ETCD_ENDPOINT: Opt = Opt {
    name: "etcd-endpoint",
    default: "127.0.0.1:2379",
    group: Group::Discovery,
    help: "HOST, HOST:PORT or URL of etcd; several members separated by commas.",
    ..ROW
};
pub(super) static ETCD_CA_FILE: Opt = Opt {
    name: "etcd-ca-file",
    environment: Some("INFERA_ROUTER_ETCD_CA_FILE"),
    group: Group::Discovery,
    help: "File of certificates (PEM) that the one of etcd has to come from, in place of those that the system trusts.",
    ..ROW
};
pub(super) static ETCD_CERT_FILE: Opt = Opt {
    name: "etcd-cert-file",
    environment: Some("INFERA_ROUTER_ETCD_CERT_FILE"),
    group: Group::Discovery,
    help: "File with the certificate (PEM) that etcd is shown.",
    ..ROW
};
pub(super) static ETCD_KEY_FILE: Opt = Opt {
    name: "etcd-key-file",
    environment: Some("INFERA_ROUTER_ETCD_KEY_FILE"),
    group: Group::Discovery,
    help: "File with its key (PEM).",
    ..ROW
};
pub(super) static ETCD_USER: Opt = Opt {
    name: "etcd-user",
    environment: Some("INFERA_ROUTER_ETCD_USER"),
    group: Group::Discovery,
    help: "User of etcd, if it asks for one.",
    ..ROW
};
pub(super) static ETCD_PASSWORD_FILE: Opt = Opt {
    name: "etcd-password-file",
    environment: Some("INFERA_ROUTER_ETCD_PASSWORD_FILE"),
    group: Group::Discovery,
    help: "File with the user's password.",
    ..ROW
};
pub(super) static ETCD_PASSWORD: Opt = Opt {
    name: "etcd-password",
    environment: Some(Password::VARIABLE),
    flag: false,
    group: Group::Discovery,
    help: "The user's password, if it is in no file.",
    ..ROW
};
