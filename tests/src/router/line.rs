//! A line between two sides that can go dead: what has been connected stays connected, and not a byte arrives any more.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A line to one address. Its threads end with the process.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    /// Connections with a smaller number are dead.
    alive_from: Arc<AtomicUsize>,
    /// Connections so far.
    made: Arc<AtomicUsize>,
}

impl Line {
    /// Lays one to `to`.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
        let address = listener.local_addr().expect("its address");
        let (alive_from, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let line = Self { address, alive_from: Arc::clone(&alive_from), made: Arc::clone(&made) };
        thread("line-accept", move || {
            for near in listener.incoming().map_while(Result::ok) {
                let number = made.fetch_add(1, Ordering::SeqCst);
                let Ok(far) = TcpStream::connect(to) else { continue };
                let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else {
                    continue;
                };
                for (from, into) in [(near, far), (far_too, near_too)] {
                    let alive_from = Arc::clone(&alive_from);
                    thread("line-copy", move || copy(from, into, number, &alive_from));
                }
            }
        });
        line
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing arrives over the connections that there are; new ones are fine.
    pub fn go_dead(&self) {
        self.alive_from.store(self.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// How many connections there have been.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("starting a thread");
}

fn copy(mut from: TcpStream, mut into: TcpStream, number: usize, alive_from: &AtomicUsize) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_alive = number >= alive_from.load(Ordering::SeqCst);
        if is_alive && into.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if number >= alive_from.load(Ordering::SeqCst) {
        // The other side may have closed it.
        drop(into.shutdown(std::net::Shutdown::Both));
    }
}
