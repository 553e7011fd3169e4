//! Sockets of multicast DNS on one interface: by IPv4 and by IPv6, as far as the interface has addresses of both.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketType, bind, ipproto, socket, sockopt},
};
use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::OwnedFd,
    time::Duration,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The port of multicast DNS.
pub(super) const PORT: u16 = 5353;

/// A socket, and where all are reached.
#[derive(Debug)]
struct Way {
    socket: UdpSocket,
    group: SocketAddr,
}

/// One interface.
#[derive(Debug)]
pub(super) struct Link {
    /// By the family of the address first.
    ways: Vec<Way>,
}

/// A packet that came: from whom, and by which way.
pub(super) struct Came {
    pub length: usize,
    pub from: SocketAddr,
    way: usize,
}

impl Link {
    /// The interface that has this address.
    ///
    /// # Errors
    /// As the kernel says; where no interface has it.
    pub(super) fn open(at: SocketAddr) -> io::Result<Link> {
        let index = index_of(at)?;
        let first = match (at, index) {
            (SocketAddr::V4(at), _) => by_four(Some(*at.ip()), index),
            (SocketAddr::V6(_), Some(index)) => by_six(index),
            (SocketAddr::V6(_), None) => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let mut ways = vec![first?];
        // The other family beside it, where the interface has it.
        if let Some(index) = index {
            ways.extend(match at {
                SocketAddr::V4(_) => by_six(index).ok(),
                SocketAddr::V6(_) => four_of(index).and_then(|_| by_four(None, Some(index)).ok()),
            });
        }
        Ok(Link { ways })
    }

    /// To all, by every way.
    ///
    /// # Errors
    /// When it cannot be sent by the family of the address.
    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        for way in &self.ways[1..] {
            let _ = way.socket.send_to(packet, way.group);
        }
        self.ways[0].socket.send_to(packet, self.ways[0].group).map(drop)
    }

    /// By the way that a question came: to who asked, or to all.
    pub(super) fn reply(&self, to: &Came, packet: &[u8], alone: bool) {
        let way = &self.ways[to.way];
        let _ = way.socket.send_to(packet, if alone { to.from } else { way.group });
    }

    /// The next packet, at most `wait` from now.
    pub(super) fn receive(&self, buffer: &mut [u8], wait: Duration) -> Option<Came> {
        let mut ready: Vec<PollFd<'_>> =
            self.ways.iter().map(|way| PollFd::new(&way.socket, PollFlags::IN)).collect();
        let limit = Timespec {
            tv_sec: wait.as_secs().min(3600) as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        poll(&mut ready, Some(&limit)).ok()?;
        let way = ready.iter().position(|one| !one.revents().is_empty())?;
        let (length, from) = self.ways[way].socket.recv_from(buffer).ok()?;
        // A group of this name is on other interfaces too, and another program may listen there.
        let other = match (from, self.ways[way].group) {
            (SocketAddr::V6(from), SocketAddr::V6(own)) => {
                ![0, own.scope_id()].contains(&from.scope_id())
            }
            _ => false,
        };
        (!other).then_some(Came { length, from, way })
    }
}

/// A socket beside those of other responders.
fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let fd = socket(family, SocketType::DGRAM, Some(ipproto::UDP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    Ok(fd)
}

fn by_four(address: Option<Ipv4Addr>, index: Option<u32>) -> io::Result<Way> {
    let fd = open(AddressFamily::INET)?;
    bind(&fd, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))?;
    let any = Ipv4Addr::UNSPECIFIED;
    match (address, index) {
        (Some(address), _) => {
            sockopt::set_ip_multicast_if(&fd, &address)?;
            sockopt::set_ip_add_membership(&fd, &GROUP, &address)?;
        }
        (None, Some(index)) => {
            sockopt::set_ip_multicast_if_with_ifindex(&fd, &any, &any, index)?;
            sockopt::set_ip_add_membership_with_ifindex(&fd, &GROUP, &any, index)?;
        }
        (None, None) => return Err(io::ErrorKind::AddrNotAvailable.into()),
    }
    sockopt::set_ip_multicast_ttl(&fd, 255)?;
    sockopt::set_ip_multicast_loop(&fd, true)?;
    way(fd, (GROUP, PORT).into())
}

fn by_six(index: u32) -> io::Result<Way> {
    let fd = open(AddressFamily::INET6)?;
    sockopt::set_ipv6_v6only(&fd, true)?;
    bind(&fd, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)))?;
    sockopt::set_ipv6_multicast_if(&fd, index)?;
    sockopt::set_ipv6_add_membership(&fd, &GROUP6, index)?;
    sockopt::set_ipv6_multicast_hops(&fd, 255)?;
    sockopt::set_ipv6_unicast_hops(&fd, Some(255))?;
    sockopt::set_ipv6_multicast_loop(&fd, true)?;
    way(fd, SocketAddrV6::new(GROUP6, PORT, 0, index).into())
}

fn way(fd: OwnedFd, group: SocketAddr) -> io::Result<Way> {
    let socket = UdpSocket::from(fd);
    socket.set_nonblocking(true)?;
    Ok(Way { socket, group })
}

/// The number of the interface that has an address; `None` where it cannot be told of an IPv4 address.
fn index_of(at: SocketAddr) -> io::Result<Option<u32>> {
    match at {
        SocketAddr::V6(at) if at.scope_id() != 0 => Ok(Some(at.scope_id())),
        SocketAddr::V6(at) => {
            let list = fs::read_to_string("/proc/net/if_inet6")?;
            Ok(six_in(&list, *at.ip()))
        }
        SocketAddr::V4(at) => {
            let devices = fs::read_to_string("/proc/net/igmp")?;
            let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
            let by_route = device_of(&routes, *at.ip()).and_then(|name| {
                devices_in(&devices).find(|(_, device)| *device == name).map(|(index, _)| index)
            });
            // A loopback has no route that is listed.
            let mut all = devices_in(&devices).map(|(index, _)| index);
            Ok(by_route.or_else(|| all.find(|index| four_of(*index) == Some(*at.ip()))))
        }
    }
}

/// In a list of addresses: 32 digits, and the interface's number, in hexadecimal, are the first two words of a line.
///
/// # Source
/// proc_pid_net(5), `if_inet6`.
fn six_in(list: &str, address: Ipv6Addr) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let found = u128::from_str_radix(words.next()?, 16).ok()?;
        let index = u32::from_str_radix(words.next()?, 16).ok()?;
        (Ipv6Addr::from(found) == address).then_some(index)
    })
}

/// Interfaces that speak IPv4: number and name are the first words of the lines that are not indented.
///
/// # Source
/// proc_pid_net(5), `igmp`.
fn devices_in(list: &str) -> impl Iterator<Item = (u32, &str)> {
    list.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).filter_map(|line| {
        let mut words = line.split([' ', '\t', ':']).filter(|word| !word.is_empty());
        Some((words.next()?.parse().ok()?, words.next()?))
    })
}

/// The interface behind which an address's own network is: the narrowest one without a gateway. Numbers are hexadecimal, bytes as the
/// machine has them.
///
/// # Source
/// proc_pid_net(5), `route`.
fn device_of(routes: &str, address: Ipv4Addr) -> Option<&str> {
    let address = u32::from_ne_bytes(address.octets());
    let networks = routes.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (network, gateway, mask) = (number(1)?, number(2)?, number(7)?);
        let is_own = gateway == 0 && mask != 0 && address & mask == network;
        is_own.then_some((mask.count_ones(), *words.first()?))
    });
    networks.max_by_key(|(bits, _)| *bits).map(|(_, device)| device)
}

/// The address from which an interface would send to the group.
fn four_of(index: u32) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    let any = Ipv4Addr::UNSPECIFIED;
    sockopt::set_ip_multicast_if_with_ifindex(&socket, &any, &any, index).ok()?;
    // Nothing is sent by this.
    socket.connect((GROUP, PORT)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_unspecified() => Some(address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_known_by_its_address() {
        let list = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    fe8000000000000000fc00fffe000001 0c 40 20 80     eth0\ntorn\n";
        assert_eq!(six_in(list, Ipv6Addr::LOCALHOST), Some(1));
        assert_eq!(six_in(list, "fe80::fc:ff:fe00:1".parse().unwrap()), Some(12));
        assert_eq!(six_in(list, "fd00::1".parse().unwrap()), None);
        let list = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                    1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
                    12\teth0.5    :     1      V3\n";
        assert_eq!(devices_in(list).collect::<Vec<_>>(), [(1, "lo"), (12, "eth0.5")]);
        let number = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let route = |device: &str, network, gateway, mask| {
            let (network, gateway, mask) = (number(network), number(gateway), number(mask));
            format!("{device}\t{network}\t{gateway}\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n")
        };
        let routes = "Iface\tDestination\tGateway\n".to_owned()
            + &route("eth0", [0; 4], [192, 0, 2, 1], [0; 4])
            + &route("wide", [192, 0, 0, 0], [0; 4], [255, 255, 0, 0])
            + &route("eth0", [192, 0, 2, 0], [0; 4], [255, 255, 255, 0]);
        assert_eq!(device_of(&routes, Ipv4Addr::new(192, 0, 2, 8)), Some("eth0"));
        assert_eq!(device_of(&routes, Ipv4Addr::new(192, 0, 3, 8)), Some("wide"));
        assert_eq!(device_of(&routes, Ipv4Addr::new(10, 0, 0, 1)), None);
    }
}
