//! Addresses for servers that are told where to listen.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
};

/// So many sockets to listen at, all of one address of loopback that nobody else takes: one of sixteen million, by chance.
/// A free port of 127.0.0.1 does not stay free: the next test that looks for one may get the same before a server listens there.
///
/// # Panics
/// Where this machine has no network of loopback.
pub fn own_sockets<const N: usize>() -> [SocketAddrV4; N] {
    let [a, b, c, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    let address = Ipv4Addr::new(127, a.clamp(1, 254), b, c.clamp(1, 254));
    let held = [(); N].map(|()| TcpListener::bind((address, 0)).expect("a port of loopback"));
    held.map(|one| SocketAddrV4::new(address, one.local_addr().expect("its port").port()))
}
