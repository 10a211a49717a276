//! Bounded msgpack: what both protocols are written in.
//!
//! [`Reader`] walks bytes without trusting a length in them; [`Fields`] is one message's map with
//! its values still in place; [`Array`] is a list, either in place in a frame or a slice that is
//! about to be sent; [`FrameWriter`] appends one frame to a caller's buffer.
//!
//! **Invariant:** nothing here allocates while reading.

mod array;
mod fields;
mod reader;
mod value;
mod writer;

pub use array::{Array, Metadata, Pairs};
pub use fields::{FIELDS_MAX, Fields};
pub use reader::{NESTING_MAX, Reader};
pub use value::{Items, Value, Wire};
pub use writer::{
    FrameWriter, put_array_head, put_bin, put_bin_head, put_f64, put_i64, put_map_head, put_nil,
    put_str, put_u64,
};
pub(crate) use writer::{Later, array_head_bytes, bin_bytes, str_bytes};
