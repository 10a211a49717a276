//! From the caller's pointers to Rust values, after every check that can be made: null, alignment, overflow, text.
//!
//! What cannot be checked, that the memory is there, is what every C function trusts its caller with.

#![expect(unsafe_code, reason = "the one place where the caller's pointers are believed")]

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use kvd_client::{Foreign, ForeignMut};

use crate::codes::{KVD_ITEMS_MAX, Status};
use crate::failure::Failure;
use crate::shapes::{Bytes, CommitItem, Fetched, Lineage, Namespace, Options};

/// The caller's word that its pointers are what the header asks for, for as long as the call takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'call>(PhantomData<&'call ()>);

/// Types whose values are plain numbers and pointers: any bytes are a valid value.
///
/// # Safety
/// That must be true.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: a number.
unsafe impl Plain for u8 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: a pointer and a number.
unsafe impl Plain for Bytes {}
// SAFETY: two pointers.
unsafe impl Plain for Namespace {}
// SAFETY: pointers and numbers.
unsafe impl Plain for Options {}
// SAFETY: pointers and numbers; padding is never read.
unsafe impl Plain for Fetched {}
// SAFETY: pointers and numbers.
unsafe impl Plain for CommitItem {}
// SAFETY: pointers and numbers; padding is never read.
unsafe impl Plain for Lineage {}

/// Room of the caller to copy into; it need not be initialised.
#[derive(Debug)]
pub(crate) struct Buffer<'call> {
    address: *mut u8,
    capacity: usize,
    call: PhantomData<&'call mut [u8]>,
}

impl<'call> Buffer<'call> {
    /// Its first `len` bytes.
    pub(crate) fn first(self, len: usize) -> Result<ForeignMut<'call>, Failure> {
        if len > self.capacity {
            let text = format!("the block has {len} bytes, the buffer {}", self.capacity);
            return Err(Failure::new(Status::TooSmall, text));
        }
        // SAFETY: no more than the caller vouched for when it handed out the buffer, which is used up by this.
        Ok(unsafe { ForeignMut::new(self.address, len) })
    }
}

/// Places of the caller for answers; they need not be initialised.
#[derive(Debug)]
pub(crate) struct Outputs<'call, T>(&'call mut [MaybeUninit<T>]);

impl<T: Copy> Outputs<'_, T> {
    /// Writes one answer; one that there is no place for is dropped.
    pub(crate) fn set(&mut self, index: usize, value: T) {
        if let Some(place) = self.0.get_mut(index) {
            place.write(value);
        }
    }

    /// Writes the same answer everywhere.
    pub(crate) fn fill(&mut self, value: T) {
        self.0.fill(MaybeUninit::new(value));
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'call> Caller<'call> {
    /// # Safety
    /// During `'call`, every pointer that is handed to the methods of this value, and every pointer inside what those
    /// point to, is null or is what the header says of it: texts end with a 0; arrays hold as many items as stands
    /// beside them and are initialised if they are read; nothing that is read is written meanwhile; what is written
    /// overlaps nothing else of the call and is used by nobody else.
    pub(crate) const unsafe fn trusted() -> Self {
        Self(PhantomData)
    }

    /// A text that must be there.
    pub(crate) fn text(self, what: &str, text: *const c_char) -> Result<&'call str, Failure> {
        self.optional_text(what, text)?.ok_or_else(|| Failure::argument(format!("{what} is null")))
    }

    /// A text, or nothing for null.
    pub(crate) fn optional_text(
        self,
        what: &str,
        text: *const c_char,
    ) -> Result<Option<&'call str>, Failure> {
        if text.is_null() {
            return Ok(None);
        }
        // SAFETY: not null, hence a text that ends with a 0 and is not written during the call.
        let text = unsafe { CStr::from_ptr(text) };
        let not_utf_8 = |trouble| Failure::argument(format!("{what} is not UTF-8: {trouble}"));
        text.to_str().map(Some).map_err(not_utf_8)
    }

    /// One value that must be there.
    pub(crate) fn item<T: Plain>(self, what: &str, item: *const T) -> Result<T, Failure> {
        check(what, item, 1, 1)?;
        // SAFETY: not null and aligned (checked), hence a value that may be read; any bytes are a valid `T`.
        Ok(unsafe { item.read() })
    }

    /// An array to read.
    pub(crate) fn items<T: Plain>(
        self,
        what: &str,
        items: *const T,
        count: usize,
    ) -> Result<&'call [T], Failure> {
        check(what, items, count, KVD_ITEMS_MAX)?;
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: not null, aligned and of a possible size (checked), hence `count` values that may be read and are
        // not written during the call; any bytes are a valid `T`.
        Ok(unsafe { std::slice::from_raw_parts(items, count) })
    }

    /// An array to read and to write.
    pub(crate) fn items_mut<T: Plain>(
        self,
        what: &str,
        items: *mut T,
        count: usize,
    ) -> Result<&'call mut [T], Failure> {
        check(what, items, count, KVD_ITEMS_MAX)?;
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: not null, aligned and of a possible size (checked), hence `count` values that may be read and
        // written and that nobody else uses during the call; any bytes are a valid `T`.
        Ok(unsafe { std::slice::from_raw_parts_mut(items, count) })
    }

    /// An array to write.
    pub(crate) fn outputs<T: Copy>(
        self,
        what: &str,
        places: *mut T,
        count: usize,
    ) -> Result<Outputs<'call, T>, Failure> {
        check(what, places, count, KVD_ITEMS_MAX)?;
        if count == 0 {
            return Ok(Outputs(&mut []));
        }
        // SAFETY: not null, aligned and of a possible size (checked), hence room for `count` values that nobody else
        // uses during the call; it may be uninitialised, which `MaybeUninit` says.
        Ok(Outputs(unsafe { std::slice::from_raw_parts_mut(places.cast(), count) }))
    }

    /// A place for one answer.
    pub(crate) fn output<T: Copy>(
        self,
        what: &str,
        place: *mut T,
    ) -> Result<Outputs<'call, T>, Failure> {
        self.outputs(what, place, 1)
    }

    /// A place for one answer that the caller may not want.
    pub(crate) fn optional_output<T: Copy>(
        self,
        what: &str,
        place: *mut T,
    ) -> Result<Outputs<'call, T>, Failure> {
        self.outputs(what, place, usize::from(!place.is_null()))
    }

    /// Few bytes to read in place: a key, a hash.
    pub(crate) fn bytes(self, what: &str, bytes: Bytes) -> Result<&'call [u8], Failure> {
        self.items(what, bytes.data.cast::<u8>(), bytes.len)
    }

    /// Bytes to copy from.
    pub(crate) fn source(self, what: &str, bytes: Bytes) -> Result<Foreign<'call>, Failure> {
        let address = bytes.data.cast::<u8>();
        check(what, address, bytes.len, usize::MAX)?;
        // SAFETY: not null (checked), hence `len` bytes that may be read during the call.
        Ok(unsafe { Foreign::new(address, bytes.len) })
    }

    /// Room to copy to.
    pub(crate) fn buffer(
        self,
        what: &str,
        buffer: *mut c_void,
        capacity: usize,
    ) -> Result<Buffer<'call>, Failure> {
        let address = buffer.cast::<u8>();
        check(what, address, capacity, usize::MAX)?;
        Ok(Buffer { address, capacity, call: PhantomData })
    }
}

/// Refuses what can be seen to be no array of `count` items.
fn check<T>(what: &str, items: *const T, count: usize, count_max: usize) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    if items.is_null() {
        return Err(Failure::argument(format!("{what} is null")));
    }
    if !items.is_aligned() {
        return Err(Failure::argument(format!("{what} is not aligned to {}", align_of::<T>())));
    }
    if count > count_max {
        return Err(Failure::argument(format!("{what}: {count} items, at most {count_max}")));
    }
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    if bytes.and_then(|bytes| items.addr().checked_add(bytes)).is_none() {
        return Err(Failure::argument(format!("{what}: {count} items do not fit in memory")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(items: *const T, count: usize, count_max: usize) -> String {
        check("it", items, count, count_max).expect_err("refused").text
    }

    #[test]
    fn what_cannot_be_an_array_is_refused() {
        let items = [0_u64; 4];
        let first = items.as_ptr();
        assert!(check("it", first, 4, 4).is_ok());
        assert!(check("it", std::ptr::null::<u64>(), 0, 4).is_ok());
        assert_eq!(refused(std::ptr::null::<u64>(), 1, 4), "it is null");
        assert_eq!(refused(first, 5, 4), "it: 5 items, at most 4");
        assert!(refused(first.wrapping_byte_add(1), 1, 4).contains("not aligned to 8"));
        assert!(refused(first, usize::MAX, usize::MAX).contains("do not fit"));
        assert!(refused(first, usize::MAX / 8, usize::MAX).contains("do not fit"));
        let last = std::ptr::without_provenance::<u8>(usize::MAX - 7);
        assert!(refused(last, 9, usize::MAX).contains("do not fit"));
    }
}
