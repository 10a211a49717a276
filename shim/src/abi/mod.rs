//! The functions of the ABI, in the order of the header. Each is one line into the guard; their comments are the
//! header's, written for C.

pub mod attach;
pub mod read;
pub mod single;
pub mod store;
pub mod words;
pub mod write;
