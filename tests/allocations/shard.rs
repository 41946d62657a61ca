//! A real shard in this process, on a thread whose allocations are counted.

use super::counter::Tally;
use ringway::host;
use ringway::logic::snapshot::Listen;
use ringway::names::keeper;
use ringway::net::ring::{Kind, Ring};
use ringway::net::shard;
use ringway::shared::snapshot_cell::{Live, Phase, World};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// A shard that serves.
pub struct Gateway {
    pub address: SocketAddr,
    pub tally: &'static Tally,
    world: Arc<World>,
    shard: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts the only shard of a gateway with this configuration.
    ///
    /// # Errors
    /// If the driver is not to be had.
    pub fn start(config: &str, driver: Kind) -> io::Result<Gateway> {
        let snapshot = ringway::config::resolve::resolve(config, &|_| None).snapshot.expect("a valid file");
        let (listen, sockets) = host::bind_all(&snapshot.server.listen, 1).unwrap().remove(0);
        let Listen::Tcp(address) = listen else { panic!("TCP was asked for") };
        let known = keeper::without_asking(&snapshot);
        let world = World::new(Live::new(snapshot, known, 1, None), 1);
        let tally = Tally::leaked();
        let (ready, started) = mpsc::channel();
        let shared = world.clone();
        let shard = thread::spawn(move || {
            let ring = if driver == Kind::IoUring { Ring::io_uring() } else { Ring::epoll() };
            ready.send(ring.as_ref().map(drop).map_err(|error| io::Error::other(error.to_string()))).unwrap();
            if let Ok(ring) = ring {
                tally.owns_this_thread();
                shard::run(0, shared, ring, sockets, 1_000);
            }
        });
        started.recv().unwrap()?;
        Ok(Gateway { address, tally, world, shard: Some(shard) })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.world.lifecycle.advance(Phase::Draining);
        let panicked = self.shard.take().is_some_and(|shard| shard.join().is_err());
        assert!(!panicked || thread::panicking(), "the shard panicked");
    }
}
