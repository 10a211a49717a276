//! `Client`: one method a request, as `kvd_client` has them.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use kvd_client::{ClearScope, ClientError, Commit, DEFAULT_SOCKET, Namespace, Options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::answers::{Attached, Located, Miss, Refusal, Repeated};
use crate::arguments::{Keys, lineages, retention, same_count, seconds, several, ttl};
use crate::batch::{self, Item, Terms};
use crate::buffer::{Readable, Writable};
use crate::lineage::Lineage;
use crate::ticket::{Ticket, take_all};
use crate::trouble::{detached, error, raised, said};
use crate::view::View;

/// A connection to the daemon of this host, made when it is first needed and made again when it is lost.
///
/// Args:
///     socket: path of the daemon's Unix socket. Default: the environment's `INFERA_KVD_SOCKET`, else
///         `/var/run/infera-kvd.sock`.
///     client_id: the name under which this client appears in `kvdctl top` and in the daemon's log. Default:
///         `python-<pid>`.
///     deadline: seconds that a call may take which is given no deadline of its own.
///
/// Needs no daemon to be made. All methods may be called from any thread; calls take turns at the connection and release
/// the interpreter's lock while they wait or copy. A forked child may go on using its parent's client: it gets a
/// connection of its own.
///
/// Whatever is wrong with the daemon, a call ends with its deadline, and the calls of an engine's way (`locate`, `fetch`,
/// `get`, `load`, `prefetch`, `reserve`, `commit`, `put`, `save`) raise nothing because of it: they answer misses and refusals, and
/// `trouble` says why. Wrong arguments raise `TypeError`, `ValueError`, `OverflowError` or `BufferError`; a closed client
/// raises `KvdError` with the code `closed`.
///
/// A key is up to 256 bytes. It means something within a model and a compat_key, each up to 1024 bytes of UTF-8.
#[pyclass(frozen, module = "infera_kvd")]
#[derive(Debug)]
pub(crate) struct Client {
    /// `None` once closed.
    client: Mutex<Option<kvd_client::Client>>,
    trouble: Mutex<Option<String>>,
}

impl Client {
    fn client(&self, py: Python<'_>) -> PyResult<kvd_client::Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.ok_or_else(|| error(py, "closed", "the client was closed".to_owned()))
    }

    /// Remembers what was wrong with the daemon; what was wrong with the arguments is raised.
    fn note(&self, py: Python<'_>, trouble: Option<&ClientError>) -> PyResult<()> {
        if let Some(error @ ClientError::Argument { .. }) = trouble {
            return Err(raised(py, error));
        }
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble.map(said);
        Ok(())
    }

    /// As [`Self::note`], and the trouble is raised too.
    fn noted<T>(&self, py: Python<'_>, outcome: Result<T, ClientError>) -> PyResult<T> {
        self.note(py, outcome.as_ref().err())?;
        outcome.map_err(|error| raised(py, &error))
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (socket=None, *, client_id=None, deadline=1.0))]
    fn new(socket: Option<PathBuf>, client_id: Option<String>, deadline: f64) -> PyResult<Self> {
        let named = || std::env::var_os("INFERA_KVD_SOCKET").filter(|path| !path.is_empty());
        let socket =
            socket.or_else(|| named().map(PathBuf::from)).unwrap_or_else(|| DEFAULT_SOCKET.into());
        let client_id = client_id.unwrap_or_else(|| format!("python-{}", std::process::id()));
        let mut options = Options::new(socket, client_id);
        options.deadline = seconds("deadline", Some(deadline), options.deadline)?;
        let client = Mutex::new(Some(kvd_client::Client::new(options)));
        Ok(Self { client, trouble: Mutex::new(None) })
    }

    /// Connects now if there is no connection, and tells to what.
    ///
    /// Raises:
    ///     KvdError: there is no daemon, it refuses, it speaks another protocol, its arena cannot be mapped, or no answer
    ///         came in time.
    fn attach(&self, py: Python<'_>) -> PyResult<Attached> {
        let client = self.client(py)?;
        let attached = detached(py, || client.attach())?;
        self.noted(py, attached).map(Attached::from)
    }

    /// Asks where blocks are, without taking them. What is present stays fetchable for the daemon's promise window, so that
    /// work can be planned on it.
    ///
    /// Args:
    ///     keys: any number of keys.
    ///     prefix: whether the answer ends with the first miss.
    ///
    /// Returns:
    ///     One `Located` per key, in order; with `prefix`, up to and including the first miss.
    #[pyo3(signature = (model, compat_key, keys, *, prefix=true))]
    fn locate<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        compat_key: &str,
        keys: &Bound<'py, PyAny>,
        prefix: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let client = self.client(py)?;
        let keys = Keys::of(keys)?;
        let keys = keys.as_slices();
        let namespace = Namespace { model, compat_key };
        let answer = detached(py, || client.locate(namespace, &keys, prefix))?;
        self.note(py, answer.trouble.as_ref())?;
        let mut located = Repeated::<Located>::new();
        let trouble = answer.trouble.as_ref();
        let items = answer.items.into_iter();
        let items = items.map(|item| located.object(py, Located::of(item, trouble)));
        PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
    }

    /// Takes leases on blocks.
    ///
    /// Args:
    ///     keys: any number of keys; a session may hold as many leases as `Attached.limits["leases_max"]` says.
    ///     prefix: whether the answer ends with the first miss.
    ///     deadline: seconds to wait; default the client's.
    ///
    /// Returns:
    ///     One `View` or `Miss` per key, in order; with `prefix`, up to and including the first miss.
    #[pyo3(signature = (model, compat_key, keys, *, prefix=false, deadline=None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        compat_key: &str,
        keys: &Bound<'py, PyAny>,
        prefix: bool,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let client = self.client(py)?;
        let deadline = seconds("deadline", deadline, client.options().deadline)?;
        let keys = Keys::of(keys)?;
        let keys = keys.as_slices();
        let namespace = Namespace { model, compat_key };
        let answer = detached(py, || client.fetch(namespace, &keys, prefix, deadline))?;
        self.note(py, answer.trouble.as_ref())?;
        let mut misses = Repeated::<Miss>::new();
        let trouble = answer.trouble.as_ref();
        let items = answer.items.into_iter().map(|item| match item {
            Ok(view) => Ok(Py::new(py, View::from(view))?.into_any()),
            Err(reason) => misses.object(py, Miss::of(reason, trouble)),
        });
        PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
    }

    /// Tells the daemon that blocks will be fetched soon, in this order, so that it brings those that are not in memory there.
    /// A hint: nothing is waited for but the sending.
    ///
    /// Args:
    ///     keys: any number of keys, those wanted first in front.
    ///     deadline: for how many seconds the copies in memory are of use; what was not begun by then is dropped. Default
    ///         the client's.
    #[pyo3(signature = (model, compat_key, keys, *, deadline=None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        model: &str,
        compat_key: &str,
        keys: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<()> {
        let client = self.client(py)?;
        let deadline = seconds("deadline", deadline, client.options().deadline)?;
        let keys = Keys::of(keys)?;
        let keys = keys.as_slices();
        let namespace = Namespace { model, compat_key };
        let told = detached(py, || client.prefetch(namespace, &keys, deadline))?;
        self.note(py, told.as_ref().err())
    }

    /// A copy of one block, or why it is not there.
    fn get(
        &self,
        py: Python<'_>,
        model: &str,
        compat_key: &str,
        key: &[u8],
    ) -> PyResult<Py<PyAny>> {
        let client = self.client(py)?;
        let deadline = client.options().deadline;
        let namespace = Namespace { model, compat_key };
        let answer = detached(py, || client.fetch(namespace, &[key], false, deadline))?;
        self.note(py, answer.trouble.as_ref())?;
        match answer.items.into_iter().next() {
            Some(Ok(view)) => {
                let copied =
                    PyBytes::new_with(py, view.len(), |to| detached(py, || view.copy_to(to)))?;
                Ok(copied.into_any().unbind())
            }
            Some(Err(reason)) => {
                Ok(Py::new(py, Miss::of(reason, answer.trouble.as_ref()))?.into_any())
            }
            None => Err(error(py, "internal_error", "no answer to one key".to_owned())),
        }
    }

    /// Fetches blocks, copies each to its target and returns the leases: the whole batch without the interpreter's lock.
    ///
    /// Args:
    ///     keys: any number of keys.
    ///     targets: for each key a writable, contiguous buffer, or a list or tuple of such buffers which the block is
    ///         scattered over in order. Together they must be as long as the block.
    ///     deadline: seconds to wait for the daemon, over the whole batch; default the client's. Copying comes on top.
    ///
    /// Returns:
    ///     For each key None if its target is filled, else a `Miss`; the target is then unchanged. A block of another length
    ///     than its target is a miss with the reason `size_mismatch`.
    #[pyo3(signature = (model, compat_key, keys, targets, *, deadline=None))]
    fn load(
        &self,
        py: Python<'_>,
        model: &str,
        compat_key: &str,
        keys: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Vec<Option<Miss>>> {
        let client = self.client(py)?;
        let deadline = seconds("deadline", deadline, client.options().deadline)?;
        let keys = Keys::of(keys)?;
        let keys = keys.as_slices();
        let targets = several(targets, Writable::of)?;
        same_count("targets", targets.len(), keys.len())?;
        let bytes: Vec<Vec<_>> =
            targets.iter().map(|pieces| pieces.iter().map(Writable::bytes).collect()).collect();
        let namespace = Namespace { model, compat_key };
        let outcome = detached(py, || batch::load(&client, namespace, &keys, &bytes, deadline))?;
        self.note(py, outcome.trouble.as_ref())?;
        Ok(outcome.items)
    }

    /// Reserves room to write, and waits for it if it is lacking only for the moment.
    ///
    /// Args:
    ///     sizes: lengths in bytes.
    ///     retention: `none`, `ephemeral`, `short` or `long`: what may be evicted for it.
    ///     deadline: seconds to wait; default the client's.
    ///
    /// Returns:
    ///     One `Ticket` or `Refusal` per size, in order.
    #[pyo3(signature = (sizes, *, retention="long", deadline=None))]
    fn reserve<'py>(
        &self,
        py: Python<'py>,
        sizes: Vec<u64>,
        retention: &str,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let client = self.client(py)?;
        let deadline = seconds("deadline", deadline, client.options().deadline)?;
        let retention = self::retention(retention)?;
        let granted = detached(py, || client.reserve(&sizes, retention, deadline))?;
        self.note(py, granted.as_ref().err())?;
        let mut refusals = Repeated::<Refusal>::new();
        let items = match granted {
            Ok(outcomes) => outcomes
                .into_iter()
                .map(|outcome| match outcome {
                    Ok(ticket) => Ok(Py::new(py, Ticket::from(ticket))?.into_any()),
                    Err(refusal) => refusals.object(py, refusal.into()),
                })
                .collect::<PyResult<Vec<_>>>()?,
            Err(error) => sizes
                .iter()
                .map(|_| refusals.object(py, (&error).into()))
                .collect::<PyResult<Vec<_>>>()?,
        };
        PyList::new(py, items)
    }

    /// Stores filled tickets under keys. From then on the tickets are spent, also those that are refused.
    ///
    /// Args:
    ///     items: pairs of a ticket and the key to store it under.
    ///     lengths: for each item how many bytes, from the beginning of its room, make the block; default all.
    ///     retention: the class of the blocks: `none`, `ephemeral`, `short` or `long`.
    ///     ttl: seconds until the blocks expire, rounded up to milliseconds; None: never.
    ///     lineages: for each item a `Lineage` or None.
    ///
    /// Returns:
    ///     For each item None if it is stored, else a `Refusal`. `stale_epoch` and `stale_session`: the daemon or the
    ///     connection that granted the room is gone.
    ///
    /// Raises:
    ///     BufferError: a buffer of a ticket is still in use; nothing is committed and no ticket spent.
    ///     ValueError: a ticket is spent already or named twice; nothing is committed and no other ticket spent.
    #[pyo3(signature = (model, compat_key, items, *, lengths=None, retention="long", ttl=None, lineages=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn commit(
        &self,
        py: Python<'_>,
        model: &str,
        compat_key: &str,
        items: Vec<(Bound<'_, Ticket>, Bound<'_, PyBytes>)>,
        lengths: Option<Vec<u64>>,
        retention: &str,
        ttl: Option<f64>,
        lineages: Option<Vec<Option<Bound<'_, Lineage>>>>,
    ) -> PyResult<Vec<Option<Refusal>>> {
        let client = self.client(py)?;
        let retention = self::retention(retention)?;
        let ttl = self::ttl(ttl)?;
        let lineages = self::lineages(lineages, items.len())?;
        if let Some(lengths) = &lengths {
            same_count("lengths", lengths.len(), items.len())?;
        }
        let tickets = take_all(&items)?;
        let commits = tickets.into_iter().enumerate().map(|(index, ticket)| {
            let capacity = ticket.capacity() as u64;
            let len_bytes = lengths.as_ref().map_or(capacity, |lengths| lengths[index]);
            let lineage = lineages.get(index).and_then(Option::as_ref);
            let lineage = lineage.map(|lineage| lineage.get().as_client());
            Commit { ticket, key: items[index].1.as_bytes(), len_bytes, lineage }
        });
        let commits: Vec<Commit<'_>> = commits.collect();
        let namespace = Namespace { model, compat_key };
        let outcome = detached(py, || client.commit(namespace, commits, retention, ttl))?;
        self.note(py, outcome.as_ref().err())?;
        Ok(match outcome {
            Ok(outcomes) => outcomes.into_iter().map(|one| one.err().map(Refusal::from)).collect(),
            Err(error) => vec![Some(Refusal::from(&error)); items.len()],
        })
    }

    /// Stores one block: a contiguous buffer of any type, e.g. bytes or an array. None, or why it was refused.
    #[pyo3(signature = (model, compat_key, key, value, *, retention="long", ttl=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn put(
        &self,
        py: Python<'_>,
        model: &str,
        compat_key: &str,
        key: &[u8],
        value: &Bound<'_, PyAny>,
        retention: &str,
        ttl: Option<f64>,
    ) -> PyResult<Option<Refusal>> {
        let client = self.client(py)?;
        let terms = Terms {
            namespace: Namespace { model, compat_key },
            retention: self::retention(retention)?,
            ttl: self::ttl(ttl)?,
            deadline: client.options().deadline,
        };
        let value = Readable::of(value)?;
        let items = [Item { key, pieces: vec![value.bytes()], lineage: None }];
        let outcome = detached(py, || batch::save(&client, terms, &items))?;
        self.note(py, outcome.trouble.as_ref())?;
        Ok(outcome.items.into_iter().next().flatten())
    }

    /// Reserves room for blocks, copies them there and commits them: the whole batch without the interpreter's lock.
    ///
    /// Args:
    ///     keys: any number of keys.
    ///     sources: for each key a contiguous buffer, or a list or tuple of such buffers which are gathered in order.
    ///     retention, ttl, lineages: as for `commit`.
    ///     deadline: seconds to wait for the daemon, over the whole batch; default the client's. Room is waited for only
    ///         while there is none at all: what fits now is stored, the rest is refused.
    ///
    /// Returns:
    ///     For each key None if its block is stored, else a `Refusal`.
    #[pyo3(signature = (model, compat_key, keys, sources, *, retention="long", ttl=None, lineages=None, deadline=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn save(
        &self,
        py: Python<'_>,
        model: &str,
        compat_key: &str,
        keys: &Bound<'_, PyAny>,
        sources: &Bound<'_, PyAny>,
        retention: &str,
        ttl: Option<f64>,
        lineages: Option<Vec<Option<Bound<'_, Lineage>>>>,
        deadline: Option<f64>,
    ) -> PyResult<Vec<Option<Refusal>>> {
        let client = self.client(py)?;
        let terms = Terms {
            namespace: Namespace { model, compat_key },
            retention: self::retention(retention)?,
            ttl: self::ttl(ttl)?,
            deadline: seconds("deadline", deadline, client.options().deadline)?,
        };
        let keys = Keys::of(keys)?;
        let keys = keys.as_slices();
        let lineages = self::lineages(lineages, keys.len())?;
        let sources = several(sources, Readable::of)?;
        same_count("sources", sources.len(), keys.len())?;
        let items = keys.iter().zip(&sources).enumerate().map(|(index, (key, pieces))| {
            let lineage = lineages.get(index).and_then(Option::as_ref);
            let lineage = lineage.map(|lineage| lineage.get().as_client());
            Item { key, pieces: pieces.iter().map(Readable::bytes).collect(), lineage }
        });
        let items: Vec<Item<'_>> = items.collect();
        let outcome = detached(py, || batch::save(&client, terms, &items))?;
        self.note(py, outcome.trouble.as_ref())?;
        Ok(outcome.items)
    }

    /// Forgets blocks in every tier; how many that were. Views of them stay readable.
    ///
    /// Args:
    ///     model: forget what belongs to this model,
    ///     compat_key: and to this compat_key of it.
    ///     everything: forget all there is; without the other two.
    ///
    /// Raises:
    ///     ValueError: none of them, or a combination that makes no sense.
    ///     KvdError: no daemon, or no answer in time; the blocks may be gone nevertheless.
    #[pyo3(signature = (*, model=None, compat_key=None, everything=false))]
    fn clear(
        &self,
        py: Python<'_>,
        model: Option<&str>,
        compat_key: Option<&str>,
        everything: bool,
    ) -> PyResult<u64> {
        let client = self.client(py)?;
        let scope = match (model, compat_key, everything) {
            (None, None, true) => ClearScope::Everything,
            (Some(model), None, false) => ClearScope::Model(model),
            (Some(model), Some(compat_key), false) => {
                ClearScope::Namespace(Namespace { model, compat_key })
            }
            _ => {
                let message = "clear needs a model, a model and a compat_key, or everything=True";
                return Err(PyValueError::new_err(message));
            }
        };
        let cleared = detached(py, || client.clear(scope))?;
        self.noted(py, cleared)
    }

    /// The daemon's counters and gauges by name.
    ///
    /// Raises:
    ///     KvdError: no daemon, or no answer in time.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let client = self.client(py)?;
        let stats = detached(py, || client.stats())?;
        let values = PyDict::new(py);
        for (name, value) in self.noted(py, stats)? {
            values.set_item(name, value)?;
        }
        Ok(values)
    }

    /// Why the latest call, of whichever thread, had to answer with misses or refusals of its own or raise `KvdError`; None
    /// if the daemon answered it.
    #[getter]
    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up the connection, which ends when the last view and ticket of it are gone. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        detached(py, || drop(client))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.as_ref().map_or_else(
            || "Client(closed)".to_owned(),
            |client| format!("Client({:?})", client.options().socket),
        )
    }
}
