//! The hosts whose daemons keep blocks for the workers on them: an immutable snapshot, like the fleet's, and what lives
//! on from one to the next.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use hyper::Uri;
use kvd_proto::events::{Registration, TierFigures};
use router_core::account::HostLoad;
use router_core::record::WorkerRecord;
use router_core::score::Way;
use router_core::score::fit::LinkFit;

/// Where the current snapshot is.
pub type Shared = Arc<ArcSwap<Hosts>>;

/// A host as it is in one snapshot.
#[derive(Debug)]
pub struct Host {
    /// What its daemon says of itself.
    pub registration: Registration,
    /// What is known of it from elsewhere.
    pub links: Arc<Links>,
}

/// What is known of a host's links, over any number of snapshots and lives of its daemon.
#[derive(Debug, Default)]
pub struct Links {
    /// What its workers have asked of its tiers.
    load: Mutex<HostLoad>,
    /// What answers told of their speed.
    fit: Mutex<LinkFit>,
    /// What the daemon measured.
    figures: ArcSwap<Vec<TierFigures>>,
    /// It did not take the last hint.
    refuses_hints: AtomicBool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// What its workers have asked of its tiers.
    pub fn load(&self) -> MutexGuard<'_, HostLoad> {
        held(&self.load)
    }

    /// What answers told of their speed.
    pub fn fit(&self) -> MutexGuard<'_, LinkFit> {
        held(&self.fit)
    }

    /// Whether the daemon took the last hint. One that did not is told on, but not counted on until it takes one.
    pub fn set_takes_hints(&self, takes_hints: bool) {
        self.refuses_hints.store(!takes_hints, Ordering::Relaxed);
    }

    /// Takes what the daemon measured.
    pub fn measure(&self, figures: Vec<TierFigures>) {
        self.figures.store(Arc::new(figures));
    }
}

impl Host {
    /// The way from its tiers to its workers as it is now; `believed`, as far as nobody told another one.
    #[must_use]
    pub fn way(&self, believed: Way) -> Way {
        let way = self.links.fit().applied(believed.told_by(&self.registration));
        let mut way = way.measured(&self.links.figures.load());
        way.prefetches &= !self.links.refuses_hints.load(Ordering::Relaxed);
        self.links.load().queued(way)
    }
}

/// All hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    by_id: BTreeMap<String, Arc<Host>>,
}

impl Hosts {
    /// These hosts, in place of those `before`. Of several registrations of one host the last one counts.
    #[must_use]
    pub fn new(registrations: impl Iterator<Item = Registration>, before: &Self) -> Self {
        let host = |registration: Registration| {
            let id = registration.host_id.clone();
            let links = before.by_id.get(&id).map(|host| Arc::clone(&host.links));
            (id, Arc::new(Host { registration, links: links.unwrap_or_default() }))
        };
        let named = registrations.filter(|registration| !registration.host_id.is_empty());
        Self { by_id: named.map(host).collect() }
    }

    /// All of them, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.by_id.values()
    }

    /// The host with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<Host>> {
        self.by_id.get(id)
    }

    /// The host that a worker is on: as it says itself, else the only one that has the address of its URL.
    #[must_use]
    pub fn of(&self, worker: &WorkerRecord) -> Option<&Arc<Host>> {
        if let Some(kvd) = worker.kvd.as_ref().filter(|kvd| !kvd.host_id.is_empty()) {
            return self.by_id.get(&kvd.host_id);
        }
        let url: Uri = worker.url.parse().ok()?;
        let address = url.host()?.trim_matches(['[', ']']);
        let has_it = |host: &&Arc<Host>| {
            host.registration.addrs.iter().any(|known| known.eq_ignore_ascii_case(address))
        };
        let mut hosts = self.by_id.values().filter(has_it);
        // Where several have it, it tells nothing.
        hosts.next().filter(|_| hosts.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(id: &str, addrs: &[&str]) -> Registration {
        let addrs = addrs.iter().map(|addr| (*addr).to_owned()).collect();
        Registration { host_id: id.to_owned(), addrs, ..Registration::default() }
    }

    fn worker(url: &str, more: &str) -> WorkerRecord {
        let json = format!(r#"{{"worker_id": "w", "url": "{url}"{more}}}"#);
        WorkerRecord::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_worker_is_where_it_says_or_where_its_address_is() {
        let all = [
            host("a", &["10.0.0.1", "node-a"]),
            host("b", &["10.0.0.2", "10.0.0.9"]),
            host("c", &["10.0.0.9"]),
        ];
        let hosts = Hosts::new(all.into_iter(), &Hosts::default());
        let of =
            |url, more| hosts.of(&worker(url, more)).map(|host| host.registration.host_id.clone());
        assert_eq!(of("http://10.0.0.1:80", "").as_deref(), Some("a"));
        assert_eq!(of("http://Node-A:80", "").as_deref(), Some("a"));
        assert_eq!(of("http://10.0.0.1:80", r#", "kvd": {"host_id": "b"}"#).as_deref(), Some("b"));
        // Two have it, nobody has it, and one that nobody knows.
        assert_eq!(of("http://10.0.0.9:80", ""), None);
        assert_eq!(of("http://10.0.0.3:80", ""), None);
        assert_eq!(of("http://10.0.0.1:80", r#", "kvd": {"host_id": "x"}"#), None);
    }

    #[test]
    fn links_outlive_a_registration() {
        let before = Hosts::new([host("a", &[]), host("", &["x"])].into_iter(), &Hosts::default());
        let after = Hosts::new([host("a", &["10.0.0.1"])].into_iter(), &before);
        let links = |hosts: &Hosts| Arc::clone(&hosts.get("a").unwrap().links);
        assert!(Arc::ptr_eq(&links(&before), &links(&after)));
        assert_eq!(before.iter().count(), 1);
    }

    #[test]
    fn who_did_not_take_the_last_hint_is_not_counted_on() {
        let takes = Registration { prefetch_url: Some("http://a/".to_owned()), ..host("a", &[]) };
        let hosts = Hosts::new([takes, host("b", &[])].into_iter(), &Hosts::default());
        let prefetches = |id: &str| hosts.get(id).unwrap().way(Way::default()).prefetches;
        assert!(prefetches("a") && !prefetches("b"));
        for takes_hints in [false, true] {
            hosts.get("a").unwrap().links.set_takes_hints(takes_hints);
            assert_eq!(prefetches("a"), takes_hints);
        }
    }
}
