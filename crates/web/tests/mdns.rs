//! A name by multicast DNS: on loopback, and by both families in a network namespace of its own. What it says is read by hand here, by the
//! RFC's pictures.
#![allow(clippy::unwrap_used)] // a test may

use quiet_testing::{Why, program, skip, until};
use quiet_web::LocalName;
use rustix::net::{AddressFamily, SocketType, bind, ipproto, socket, sockopt};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
const A: u16 = 1;
const AAAA: u16 = 28;

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 0)
}

/// Takes a name, and notes what is told of it.
fn take(label: &str, address: &str) -> (Result<LocalName, String>, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let tell = Box::new(move |news: &str| tell.lock().unwrap().push(news.to_owned()));
    (LocalName::take(label, at(address), tell), told)
}

/// `label.local` as DNS writes it.
fn written(label: &str) -> Vec<u8> {
    let mut name = Vec::new();
    for part in [label, "local"] {
        name.push(part.len() as u8);
        name.extend(part.as_bytes());
    }
    name.push(0);
    name
}

/// By which way is asked.
#[derive(Clone, Copy, Debug)]
enum By {
    Four(Ipv4Addr),
    Six(u32),
}

/// A socket that sends to the group, from a port of its own.
fn asker(by: By) -> (UdpSocket, SocketAddr) {
    match by {
        By::Four(from) => {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            sockopt::set_ip_multicast_if(&socket, &from).unwrap();
            (socket, (GROUP, 5353).into())
        }
        By::Six(index) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
            sockopt::set_ipv6_multicast_if(&socket, index).unwrap();
            (socket, SocketAddrV6::new(GROUP6, 5353, 0, index).into())
        }
    }
}

/// A question by somebody who knows no multicast: with a number.
fn ask(by: By, label: &str, kind: u16) -> Option<Vec<u8>> {
    let (socket, group) = asker(by);
    let mut packet = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    packet.extend(written(label));
    packet.extend([(kind >> 8) as u8, kind as u8, 0, 1]);
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut buffer = [0; 1500];
    for _ in 0..3 {
        socket.send_to(&packet, group).unwrap();
        if let Ok((n, _)) = socket.recv_from(&mut buffer) {
            return Some(buffer[..n].to_vec());
        }
    }
    None
}

/// Type, class, seconds and length of a record of 10 s at most, and its data.
fn end(address: &str) -> Vec<u8> {
    let (kind, data): (u16, Vec<u8>) = match address.parse().unwrap() {
        IpAddr::V4(address) => (A, address.octets().into()),
        IpAddr::V6(address) => (AAAA, address.octets().into()),
    };
    let mut end = vec![0, kind as u8, 0, 1, 0, 0, 0, 10, 0, data.len() as u8];
    end.extend(data);
    end
}

#[test]
fn who_asks_for_the_name_gets_the_address_and_who_wants_it_too_gets_another_one() {
    let label = format!("quiet-test-{}", std::process::id());
    let here = By::Four(Ipv4Addr::LOCALHOST);
    let name = match take(&label, "127.0.0.1").0 {
        Ok(name) => name,
        Err(why) => return skip(Why::Machine(why)),
    };
    assert_eq!(name.name(), format!("{label}.local"));
    // In any case of letters; the number and the question come back, and the address is good for 10 s at most.
    let answer = ask(here, &label.to_uppercase(), A).expect("an answer");
    assert_eq!(answer[..12], [0xAB, 0xCD, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0], "{answer:?}");
    assert!(answer.ends_with(&end("127.0.0.1")), "{answer:?}");
    // IPv6: there is none, and that is said at once (NSEC, type 47).
    let none = ask(here, &label, AAAA).expect("an answer");
    assert!(none.ends_with(&[0, 1, 0x40]) && none.windows(2).any(|two| two == [0, 47]), "{none:?}");
    assert_eq!(ask(here, "quiet-test-nobody", A), None);
    // Another address of this machine asks before it takes the name, is told, and takes the next one.
    let (second, told) = take(&label, "127.0.0.2");
    let second = second.unwrap();
    assert_eq!(second.name(), format!("{label}-2.local"));
    let wanted =
        format!("127.0.0.1 has the name {label}.local: {label}-2.local is said in its place");
    assert_eq!(*told.lock().unwrap(), [wanted]);
    assert!(ask(here, &format!("{label}-2"), A).unwrap().ends_with(&end("127.0.0.2")));
    drop((name, second));
    assert_eq!(ask(here, &label, A), None, "it is taken back");
    for bad in ["", "a.b", "-x", "x-", "a b", "ü", &"x".repeat(64)] {
        assert!(take(bad, "127.0.0.1").0.unwrap_err().contains("no name"), "{bad}");
    }
    assert!(take("nowhere", "192.0.2.200").0.is_err());
}

/// Names the run of the test below that is within the namespace.
const WITHIN: &str = "QUIETCORES_MDNS_WITHIN";

const NETWORK: &str = "ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v1 up && ip link set v0 up && \
    for n in 7 8 9; do ip addr add 192.0.2.$n/24 dev v0 && ip addr add fd00::$n/64 dev v0 nodad || exit 9; done; \
    ip addr add fe80::7/64 dev v0 nodad && exec \"$0\" --exact within_a_network_of_its_own --nocapture";

#[test]
fn by_both_families_a_name_is_asked_for_said_defended_and_taken_back() {
    for name in ["unshare", "ip"] {
        if program(name).is_none() {
            let package = if name == "ip" { "iproute2" } else { "util-linux" };
            return skip(Why::Program(name, package));
        }
    }
    let own = if quiet_testing::is_root() { "-n" } else { "-rn" };
    // A kernel may have no veth, and a machine may do without IPv6.
    let veth = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip addr add fd00::7/64 dev v0";
    let veth = ["sh", "-c", veth];
    let made = Command::new("unshare").arg(own).args(veth).output().unwrap();
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        return skip(Why::Machine(format!("no network namespace with a veth and IPv6: {said}.")));
    }
    let mut within = Command::new("unshare");
    within.args([own, "sh", "-c", NETWORK]).arg(std::env::current_exe().unwrap());
    let done = within.env(WITHIN, "1").output().unwrap();
    let said = quiet_testing::bus::text(&done);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

/// Hears what is said to the group by one family, as another responder does.
fn responder(index: Option<u32>) -> (UdpSocket, SocketAddr) {
    let family = if index.is_some() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = socket(family, SocketType::DGRAM, Some(ipproto::UDP)).unwrap();
    sockopt::set_socket_reuseaddr(&fd, true).unwrap();
    sockopt::set_socket_reuseport(&fd, true).unwrap();
    let group = match index {
        Some(index) => {
            sockopt::set_ipv6_v6only(&fd, true).unwrap();
            bind(&fd, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, 5353))).unwrap();
            sockopt::set_ipv6_multicast_if(&fd, index).unwrap();
            sockopt::set_ipv6_add_membership(&fd, &GROUP6, index).unwrap();
            SocketAddrV6::new(GROUP6, 5353, 0, index).into()
        }
        None => {
            let from = Ipv4Addr::new(192, 0, 2, 9);
            bind(&fd, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 5353))).unwrap();
            sockopt::set_ip_multicast_if(&fd, &from).unwrap();
            sockopt::set_ip_add_membership(&fd, &GROUP, &from).unwrap();
            (GROUP, 5353).into()
        }
    };
    let socket = UdpSocket::from(fd);
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    (socket, group)
}

/// What was said until nothing came for a while: for each packet that begins so, the record at its end without the name.
fn said(socket: &UdpSocket, flags: u8, name: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut buffer = [0; 1500];
    while let Ok((n, _)) = socket.recv_from(&mut buffer) {
        let packet = &buffer[..n];
        let at = packet.windows(name.len()).rposition(|part| part == name);
        if let Some(at) = at.filter(|_| packet[2] == flags) {
            found.push(packet[at + name.len()..].to_vec());
        }
    }
    found
}

/// An answer to all that the name has this address.
fn claims(label: &str, address: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    packet.extend(written(label));
    packet.extend([0, AAAA as u8, 0x80, 1, 0, 0, 0, 120, 0, 16]);
    packet.extend(address.octets());
    packet
}

/// Is started by the test above, in a namespace.
#[test]
fn within_a_network_of_its_own() {
    if std::env::var_os(WITHIN).is_none() {
        return;
    }
    let index = std::fs::read_to_string("/sys/class/net/v0/ifindex").unwrap_or_default();
    // /sys may be another namespace's: then the list of addresses tells.
    let listed = || -> u32 {
        let list = std::fs::read_to_string("/proc/net/if_inet6").unwrap();
        let line = list.lines().find(|line| line.ends_with(" v0")).unwrap();
        u32::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    let index = index.trim().parse().unwrap_or_else(|_| listed());
    let four = By::Four(Ipv4Addr::new(192, 0, 2, 9));
    let (by_four, _) = responder(None);
    let (by_six, group) = responder(Some(index));
    // An address of IPv6: asked for three times by each family, said twice, and answered by each.
    let (name, told) = take("box", "fd00::7");
    let name = name.unwrap();
    let wire = written("box");
    for socket in [&by_four, &by_six] {
        let mut packets: Vec<Vec<u8>> = Vec::new();
        let mut buffer = [0; 1500];
        let of = |packets: &[Vec<u8>], flags: u8| {
            packets.iter().filter(|packet| packet[2] == flags).count()
        };
        until("it is said twice", || {
            let heard = socket.recv_from(&mut buffer).ok();
            packets.extend(heard.map(|(n, _)| buffer[..n].to_vec()));
            (of(&packets, 0x84) == 2).then_some(())
        });
        assert_eq!(of(&packets, 0), 3, "{packets:?}");
        let asks = &packets[0];
        assert!(
            asks[12..].starts_with(&wire)
                && asks.ends_with(&Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, 7]).octets())
        );
    }
    for by in [four, By::Six(index)] {
        let answer = ask(by, "BOX", AAAA).unwrap_or_else(|| panic!("no answer by {by:?}"));
        assert!(answer.ends_with(&end("fd00::7")), "{by:?}: {answer:?}");
        let none = ask(by, "box", A).unwrap();
        assert!(none.ends_with(&[0, 4, 0, 0, 0, 0x08]), "{by:?}: {none:?}");
    }
    // Another one takes the next name. One of IPv4 is answered by both families, too.
    let (second, _) = take("box", "192.0.2.8");
    let second = second.unwrap();
    assert_eq!(second.name(), "box-2.local");
    for by in [four, By::Six(index)] {
        assert!(ask(by, "box-2", A).unwrap().ends_with(&end("192.0.2.8")), "{by:?}");
    }
    // Who says once that he has the name, and then is silent, does not have it.
    let other = "fd00::9".parse().unwrap();
    by_six.send_to(&claims("box", other), group).unwrap();
    until("the name is said again", || ask(four, "box", AAAA));
    assert_eq!((name.name().as_str(), told.lock().unwrap().len()), ("box.local", 0));
    // Who goes on to say it has it: the next free name is another one's already, so it is the one after that.
    let told_all = until("another name", || {
        by_six.send_to(&claims("box", other), group).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        Some(told.lock().unwrap().clone()).filter(|told| !told.is_empty())
    });
    assert_eq!(name.name(), "box-3.local", "{told_all:?}");
    assert!(told_all[0].ends_with("box-3.local is said in its place"), "{told_all:?}");
    assert!(ask(By::Six(index), "box-3", AAAA).unwrap().ends_with(&end("fd00::7")));
    // At its end it takes the name back by both families: good for no time from now on.
    let wire = written("box-3");
    drop(name);
    for socket in [&by_four, &by_six] {
        let mut gone = said(socket, 0x84, &wire);
        gone.retain(|record| record[4..8] == [0; 4]);
        assert_eq!(gone.len(), 1, "{gone:?}");
        assert_eq!(gone[0][..4], [0, AAAA as u8, 0x80, 1], "{gone:?}");
    }
    assert_eq!(ask(four, "box-3", AAAA), None);
    drop(second);
    // One of the link alone, with the interface's number.
    let link = SocketAddrV6::new("fe80::7".parse().unwrap(), 0, 0, index);
    let name = LocalName::take("near", link.into(), Box::new(|_| {})).unwrap();
    assert!(ask(four, "near", AAAA).unwrap().ends_with(&end("fe80::7")));
    drop(name);
}
