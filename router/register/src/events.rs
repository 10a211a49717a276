//! Where an engine publishes its cache events, from what it was configured with: whom one has to connect to. Pure.

use serde_json::{Map, Value};

/// What routers listen to.
pub(crate) const TOPIC: &str = "kv-events";

/// A publisher as it is configured, for rank 0 or for the one rank that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publisher {
    pub(crate) is_on: bool,
    pub(crate) endpoint: String,
    pub(crate) replay: Option<String>,
    pub(crate) topic: String,
    /// Whether it listens; nothing if its address decides.
    pub(crate) binds: Option<bool>,
}

/// A place that can be connected to; no host means any address of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
}

impl Place {
    /// The place of another rank, `ranks` further.
    pub(crate) fn further(&self, ranks: u32) -> Option<Self> {
        let port = u16::try_from(u32::from(self.port).checked_add(ranks)?).ok()?;
        Some(Self { host: self.host.clone(), port })
    }

    /// As an endpoint, seen from elsewhere.
    pub(crate) fn endpoint(&self, this_host: &str) -> String {
        format!("tcp://{}:{}", self.host.as_deref().unwrap_or(this_host), self.port)
    }
}

impl Publisher {
    /// Reads a configuration as both vLLM and SGLang write it.
    pub(crate) fn of(config: &Map<String, Value>) -> Self {
        let text = |name: &str| Some(config.get(name)?.as_str()?.to_owned());
        let is_enabled = config.get("enable_kv_cache_events").and_then(Value::as_bool);
        let publisher = text("publisher");
        let is_on = match (is_enabled, publisher.as_deref()) {
            (Some(false), _) | (None, None) | (_, Some("null")) => false,
            (_, Some(_)) | (Some(true), None) => true,
        };
        Self {
            is_on,
            endpoint: text("endpoint").unwrap_or_else(|| "tcp://*:5557".to_owned()),
            replay: text("replay_endpoint"),
            topic: text("topic").unwrap_or_default(),
            binds: config.get("bind").and_then(Value::as_bool),
        }
    }

    /// Whom to connect to, or why nobody can.
    pub(crate) fn place(&self) -> Result<Place, String> {
        let endpoint = &self.endpoint;
        let place = place(endpoint)?;
        let listens = self.binds.unwrap_or(place.host.is_none());
        if !listens {
            return Err(format!(
                "the engine connects to {endpoint} instead of listening; give it tcp://*:PORT"
            ));
        }
        Ok(place)
    }
}

/// Reads `tcp://HOST:PORT`.
pub(crate) fn place(endpoint: &str) -> Result<Place, String> {
    let wrong = || format!("nobody elsewhere can connect to {endpoint}; it has to be tcp://*:PORT");
    let (host, port) =
        endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| format!("{endpoint} does not tell its port"))?;
    let is_any = matches!(host, "*" | "0.0.0.0" | "::" | "[::]");
    if host.is_empty() {
        return Err(wrong());
    }
    Ok(Place { host: (!is_any).then(|| host.to_owned()), port })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn publisher(config: &Value) -> Publisher {
        Publisher::of(config.as_object().unwrap())
    }

    #[test]
    fn on_is_what_the_engines_call_on() {
        for (config, is_on) in [
            (json!({"enable_kv_cache_events": true}), true),
            (json!({"enable_kv_cache_events": true, "publisher": "zmq"}), true),
            (json!({"enable_kv_cache_events": true, "publisher": "null"}), false),
            (json!({"enable_kv_cache_events": false, "publisher": "zmq"}), false),
            (json!({"publisher": "zmq"}), true),
            (json!({"topic": "x"}), false),
        ] {
            assert_eq!(publisher(&config).is_on, is_on, "{config}");
        }
    }

    #[test]
    fn only_who_listens_can_be_connected_to() {
        for (config, endpoint) in [
            (json!({"endpoint": "tcp://*:5600"}), Some("tcp://h:5600")),
            (json!({}), Some("tcp://h:5557")),
            (json!({"endpoint": "tcp://[::]:1"}), Some("tcp://h:1")),
            (json!({"endpoint": "tcp://10.0.0.9:1", "bind": true}), Some("tcp://10.0.0.9:1")),
            (json!({"endpoint": "tcp://10.0.0.9:1"}), None),
            (json!({"endpoint": "tcp://*:0"}), None),
            (json!({"endpoint": "tcp://*:70000"}), None),
            (json!({"endpoint": "tcp://:5"}), None),
            (json!({"endpoint": "ipc:///run/x"}), None),
            (json!({"endpoint": "inproc://x"}), None),
        ] {
            let place = publisher(&config).place();
            let found = place.as_ref().ok().map(|place| place.endpoint("h"));
            assert_eq!(found.as_deref(), endpoint, "{config}: {place:?}");
        }
    }

    #[test]
    fn ranks_follow_each_other_as_far_as_ports_go() {
        let place = Place { host: None, port: 65_534 };
        assert_eq!(place.further(1).unwrap().endpoint("h"), "tcp://h:65535");
        assert_eq!(place.further(2), None);
        assert_eq!(place.further(u32::MAX), None);
    }
}
