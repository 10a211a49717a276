//! Python's values as the client wants them. A value of the wrong type is a `TypeError`, an impossible one a
//! `ValueError`; both before anything is sent.

use std::time::Duration;

use kvd_client::Retention;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::answers::named;
use crate::lineage::Lineage;

/// The keys of a batch, held so that their bytes can be read without the interpreter's lock.
pub(crate) struct Keys<'py>(Vec<Bound<'py, PyBytes>>);

impl<'py> Keys<'py> {
    pub(crate) fn of(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if keys.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err("keys must be a sequence of bytes, not one key"));
        }
        if let Ok(list) = keys.cast::<PyList>() {
            return list.iter().map(key).collect::<PyResult<_>>().map(Self);
        }
        keys.try_iter()?.map(|one| key(one?)).collect::<PyResult<_>>().map(Self)
    }

    pub(crate) fn as_slices(&self) -> Vec<&[u8]> {
        self.0.iter().map(|key| key.as_bytes()).collect()
    }
}

fn key(one: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyBytes>> {
    one.cast_into::<PyBytes>().map_err(|other| {
        PyTypeError::new_err(format!("a key must be bytes, not {}", named(&other.into_inner())))
    })
}

/// Seconds, at least 0; `absent` stands in if there are none.
pub(crate) fn seconds(what: &str, given: Option<f64>, absent: Duration) -> PyResult<Duration> {
    given.map_or(Ok(absent), |given| {
        if given.is_infinite() && given.is_sign_positive() {
            return Ok(Duration::MAX);
        }
        Duration::try_from_secs_f64(given)
            .map_err(|why| PyValueError::new_err(format!("{what} of {given} seconds: {why}")))
    })
}

/// A time to live: more than nothing, or none.
pub(crate) fn ttl(given: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(given) = given else { return Ok(None) };
    let ttl = seconds("ttl", Some(given), Duration::ZERO)?;
    if ttl.is_zero() {
        return Err(PyValueError::new_err("ttl must be more than 0 seconds; None means no end"));
    }
    Ok(Some(ttl))
}

pub(crate) fn retention(word: &str) -> PyResult<Retention> {
    Retention::parse(word).ok_or_else(|| {
        let words = Retention::ALL.map(Retention::as_str).join(", ");
        PyValueError::new_err(format!("retention {word:?} is none of {words}"))
    })
}

/// One lineage or `None` for each of `count` items; empty if there are none at all.
pub(crate) fn lineages<'py>(
    given: Option<Vec<Option<Bound<'py, Lineage>>>>,
    count: usize,
) -> PyResult<Vec<Option<Bound<'py, Lineage>>>> {
    let given = given.unwrap_or_default();
    if !given.is_empty() {
        same_count("lineages", given.len(), count)?;
    }
    Ok(given)
}

pub(crate) fn same_count(what: &str, given: usize, wanted: usize) -> PyResult<()> {
    if given == wanted {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{given} {what} for {wanted} items")))
}

/// For each item of a sequence its buffers: several of a list or tuple, else one.
pub(crate) fn several<B>(
    items: &Bound<'_, PyAny>,
    open: impl Fn(&Bound<'_, PyAny>) -> PyResult<B>,
) -> PyResult<Vec<Vec<B>>> {
    let of_one = |item: Bound<'_, PyAny>| {
        if let Ok(list) = item.cast::<PyList>() {
            list.iter().map(|piece| open(&piece)).collect()
        } else if let Ok(tuple) = item.cast::<PyTuple>() {
            tuple.iter().map(|piece| open(&piece)).collect()
        } else {
            Ok(vec![open(&item)?])
        }
    };
    items.try_iter()?.map(|item| of_one(item?)).collect()
}
