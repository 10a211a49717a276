//! Everything that crosses a process boundary as bytes: keys, classes, frames, operations.
