//! What the daemon answers, as plain values that never change.

use std::borrow::Cow;

use kvd_client::{ClientError, MissReason, Present};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

/// Why a block is not there. Falsy.
///
/// Attributes:
///     reason (str): `never_stored`, `evicted_<class>`, `expired`, `cleared`, `other_namespace`, `corrupt`, `deadline`,
///         `shed` (the daemon is at a limit), or, from `Client.load` only, `size_mismatch` (the block has another length
///         than its target); or the code of the trouble that kept the daemon from being asked: `not_connected` (there is
///         none, or none that lets this user in), `disconnected`, ... (see `Client.trouble`).
#[pyclass(frozen, eq, hash, module = "infera_kvd")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Miss {
    #[pyo3(get)]
    pub(crate) reason: Cow<'static, str>,
}

#[pymethods]
impl Miss {
    #[new]
    fn new(reason: String) -> Self {
        Self { reason: reason.into() }
    }

    fn __bool__(&self) -> bool {
        false
    }

    fn __repr__(&self) -> String {
        format!("Miss({:?})", self.reason)
    }
}

impl Miss {
    /// A miss of an answer with this trouble, if it had any.
    pub(crate) fn of(reason: MissReason, trouble: Option<&ClientError>) -> Self {
        Self { reason: word_of(reason, trouble) }
    }
}

/// The reason in a word. The client takes trouble for a daemon at a limit, which sends people to look at limits of a daemon
/// that is not there.
fn word_of(reason: MissReason, trouble: Option<&ClientError>) -> Cow<'static, str> {
    match (reason, trouble) {
        (MissReason::Shed, Some(error)) => error.code().to_owned().into(),
        (reason, _) => reason.as_str().into(),
    }
}

/// Why the daemon did not grant or keep something. Falsy.
///
/// Attributes:
///     reason (str): `arena_full`, `higher_priority`, `oversize`, `session_limit`, `downgrade`, ... as the daemon says; or
///         the code of the trouble that kept it from being asked: `not_connected`, `disconnected`, `deadline`,
///         `stale_epoch`, ... (see `Client.trouble`). After `disconnected` and `deadline` of a commit, the block may be
///         stored nevertheless.
#[pyclass(frozen, eq, hash, module = "infera_kvd")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refusal {
    #[pyo3(get)]
    pub(crate) reason: Cow<'static, str>,
}

#[pymethods]
impl Refusal {
    #[new]
    fn new(reason: String) -> Self {
        Self { reason: reason.into() }
    }

    fn __bool__(&self) -> bool {
        false
    }

    fn __repr__(&self) -> String {
        format!("Refusal({:?})", self.reason)
    }
}

impl From<kvd_client::Refusal> for Refusal {
    fn from(refusal: kvd_client::Refusal) -> Self {
        Self { reason: refusal.as_str().into() }
    }
}

impl From<&ClientError> for Refusal {
    fn from(error: &ClientError) -> Self {
        Self { reason: error.code().to_owned().into() }
    }
}

/// Where a block is. Truthy if it can be fetched.
///
/// Attributes:
///     present (bool): whether it can be fetched.
///     tier (str | None): the fastest place that has it: `host`, `disk` or `remote`.
///     nbytes (int): its length in bytes, 0 for a miss.
///     load_us (int): how long loading it should take, in microseconds, by the daemon's estimate; 0 for a miss.
///     miss (str | None): why it is not there, as `Miss.reason`.
#[pyclass(frozen, eq, get_all, module = "infera_kvd")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    present: bool,
    tier: Option<&'static str>,
    nbytes: u64,
    load_us: u64,
    miss: Option<Cow<'static, str>>,
}

#[pymethods]
impl Located {
    fn __bool__(&self) -> bool {
        self.present
    }

    fn __repr__(&self) -> String {
        match (self.tier, self.miss.as_deref()) {
            (Some(tier), _) => {
                format!("Located({tier}, {} bytes, {} us)", self.nbytes, self.load_us)
            }
            (None, miss) => format!("Located(miss: {})", miss.unwrap_or_default()),
        }
    }
}

impl Located {
    /// As [`Miss::of`].
    pub(crate) fn of(outcome: Result<Present, MissReason>, trouble: Option<&ClientError>) -> Self {
        match outcome {
            Ok(Present { tier, len_bytes, load }) => Self {
                present: true,
                tier: Some(tier.as_str()),
                nbytes: len_bytes,
                load_us: u64::try_from(load.as_micros()).unwrap_or(u64::MAX),
                miss: None,
            },
            Err(reason) => {
                let miss = Some(word_of(reason, trouble));
                Self { present: false, tier: None, nbytes: 0, load_us: 0, miss }
            }
        }
    }
}

/// What a client knows about its daemon.
///
/// Attributes:
///     epoch (int): the daemon's incarnation. Views and tickets mean nothing in another one.
///     session (int): this connection.
///     server_id (str): the incarnation's name, `kvd-` and eight hex digits.
///     arena_bytes (int): size of the shared arena, 0 if none is shared.
///     limits (dict[str, int]): what one session may use: `keys_max`, `frame_bytes_max`, `leases_max`, `tickets_max`,
///         `in_flight_bytes_max`, `value_bytes_max`.
#[pyclass(frozen, module = "infera_kvd")]
#[derive(Debug)]
pub(crate) struct Attached(kvd_client::Attached);

#[pymethods]
impl Attached {
    #[getter]
    fn epoch(&self) -> u64 {
        self.0.epoch.0
    }

    #[getter]
    fn session(&self) -> u64 {
        self.0.session.0
    }

    #[getter]
    fn server_id(&self) -> &str {
        &self.0.server_id
    }

    #[getter]
    fn arena_bytes(&self) -> u64 {
        self.0.arena_bytes
    }

    #[getter]
    fn limits(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let limits = &self.0.limits;
        [
            ("keys_max", limits.keys_max),
            ("frame_bytes_max", limits.frame_bytes_max),
            ("leases_max", limits.leases_max),
            ("tickets_max", limits.tickets_max),
            ("in_flight_bytes_max", limits.in_flight_bytes_max),
            ("value_bytes_max", limits.value_bytes_max),
        ]
        .into()
    }

    fn __repr__(&self) -> String {
        let kvd_client::Attached { server_id, session, arena_bytes, .. } = &self.0;
        format!("Attached({server_id}, session {session}, arena of {arena_bytes} bytes)")
    }
}

impl From<kvd_client::Attached> for Attached {
    fn from(attached: kvd_client::Attached) -> Self {
        Self(attached)
    }
}

/// Makes Python objects of outcomes, one object for a run of equal ones: a batch usually has few that differ.
pub(crate) struct Repeated<T> {
    last: Option<(T, Py<PyAny>)>,
}

impl<T: Clone + PartialEq + for<'py> IntoPyObject<'py>> Repeated<T> {
    pub(crate) fn new() -> Self {
        Self { last: None }
    }

    pub(crate) fn object(&mut self, py: Python<'_>, value: T) -> PyResult<Py<PyAny>> {
        if let Some((last, object)) = &self.last
            && *last == value
        {
            return Ok(object.clone_ref(py));
        }
        let object = value.clone().into_py_any(py)?;
        self.last = Some((value, object.clone_ref(py)));
        Ok(object)
    }
}

/// The name of an object's type, for messages.
pub(crate) fn named(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_unnamed| "an object".to_owned(), |name| name.to_string())
}
