//! Every decision of the cache, without clock, file, thread or socket.
