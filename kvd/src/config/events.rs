//! The settings of events.

use std::net::SocketAddr;
use std::path::PathBuf;

use kvd_etcd::{Access, Said};

use super::events_options::*;
use super::validate::Checked;

/// What is published, where, and who may hear it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsSettings {
    /// Address of events and figures.
    pub listen: SocketAddr,
    /// Address of replays.
    pub replay_listen: SocketAddr,
    /// Address of snapshots beside the admin socket.
    pub snapshot_listen: Option<SocketAddr>,
    /// Keys of the two sockets of events.
    pub curve_file: Option<PathBuf>,
    /// Token for snapshots by TCP.
    pub token_file: Option<PathBuf>,
    /// Name of this host; never empty, no slash in it.
    pub host_id: String,
    /// How others reach this host, at least one.
    pub advertise: Vec<String>,
    /// Where etcd is, and how one gets in; none: nothing is registered.
    pub etcd: Option<Access>,
    /// Folder of the record; ends with a slash.
    pub kvd_prefix: String,
}

impl Checked {
    /// The settings, if events are wanted.
    pub(super) fn events(&mut self) -> Option<EventsSettings> {
        let Some(listen) = self.address(&EVENTS_LISTEN) else {
            let others = [&EVENTS_REPLAY_LISTEN, &EVENTS_SNAPSHOT_LISTEN, &ETCD_ENDPOINT];
            for option in others {
                if self.is_said(option) {
                    let source = self.source(option);
                    self.problem(source, "nothing is published without --events-listen");
                }
            }
            return None;
        };
        let next_port = if listen.port() == 0 { 0 } else { listen.port().wrapping_add(1) };
        let replay_listen = self
            .address(&EVENTS_REPLAY_LISTEN)
            .unwrap_or_else(|| SocketAddr::new(listen.ip(), next_port));
        let snapshot_listen = self.address(&EVENTS_SNAPSHOT_LISTEN);
        let curve_file = self.text(&EVENTS_CURVE_FILE).map(PathBuf::from);
        let token_file = self.text(&EVENTS_TOKEN_FILE).map(PathBuf::from);
        for (option, address) in [(&EVENTS_LISTEN, listen), (&EVENTS_REPLAY_LISTEN, replay_listen)]
        {
            if curve_file.is_none() && self.is_said(option) && !address.ip().is_loopback() {
                let message = format!(
                    "other hosts reach {address}: give --events-curve-file, so that not everybody \
                     hears what is cached, or a loopback address"
                );
                self.problem(self.source(option), message);
            }
        }
        if let Some(address) = snapshot_listen
            && token_file.is_none()
            && !address.ip().is_loopback()
        {
            let message = format!(
                "other hosts reach {address}: give --events-token-file, so that not everybody reads \
                 what is cached, or a loopback address"
            );
            self.problem(self.source(&EVENTS_SNAPSHOT_LISTEN), message);
        }
        let own_name = nix::sys::utsname::uname().ok();
        let own_name = own_name.and_then(|names| names.nodename().to_owned().into_string().ok());
        let own_name = own_name.filter(|name| !name.is_empty());
        let own_name = own_name.unwrap_or_else(|| "localhost".to_owned());
        let host_id = self.text(&HOST_ID).unwrap_or_else(|| own_name.clone());
        if host_id.contains('/') {
            self.problem(self.source(&HOST_ID), "a host's id has no slash");
        }
        let mut advertise = self.list(&ADVERTISE);
        if advertise.is_empty() {
            if !listen.ip().is_unspecified() {
                advertise.push(listen.ip().to_string());
            }
            advertise.push(own_name);
        }
        let mut kvd_prefix = self.text(&KVD_PREFIX).unwrap_or_default();
        if !kvd_prefix.ends_with('/') {
            kvd_prefix.push('/');
        }
        let etcd = self.etcd();
        Some(EventsSettings {
            listen,
            replay_listen,
            snapshot_listen,
            curve_file,
            token_file,
            host_id,
            advertise,
            etcd,
            kvd_prefix,
        })
    }

    fn etcd(&mut self) -> Option<Access> {
        let endpoints = self.list(&ETCD_ENDPOINT);
        if endpoints.is_empty() {
            for option in [&ETCD_CA_FILE, &ETCD_CERT_FILE, &ETCD_USER, &ETCD_PASSWORD_FILE] {
                if self.is_said(option) {
                    let source = self.source(option);
                    self.problem(source, "nothing is registered without --etcd-endpoint");
                }
            }
            return None;
        }
        let path = |option| self.text(option).map(PathBuf::from);
        let access = Access::of(Said {
            endpoints,
            ca_file: path(&ETCD_CA_FILE),
            cert_file: path(&ETCD_CERT_FILE),
            key_file: path(&ETCD_KEY_FILE),
            user: self.text(&ETCD_USER),
            password_file: path(&ETCD_PASSWORD_FILE),
            password: self.etcd_password(),
        });
        for wrong in access.as_ref().err().into_iter().flatten() {
            if let Some(option) = EVENTS.iter().find(|option| option.name == wrong.option) {
                self.problem(self.source(option), &wrong.message);
            }
        }
        access.ok()
    }

    fn list(&self, option: &super::option::Opt) -> Vec<String> {
        let text = self.text(option).unwrap_or_default();
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(str::to_owned).collect()
    }
}
