//! A name by multicast DNS, on loopback alone. What it answers is read by hand here, by the RFC's pictures.
#![allow(clippy::unwrap_used)] // a test may

use quiet_testing::{Why, skip};
use quiet_web::LocalName;
use rustix::net::sockopt;
use std::{
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A question by somebody who knows no multicast: from a port of his own, with a number.
fn ask(name: &str, kind: u16) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    sockopt::set_ip_multicast_if(&socket, &HERE).unwrap();
    let mut packet = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for part in [name, "local"] {
        packet.push(part.len() as u8);
        packet.extend(part.as_bytes());
    }
    packet.extend([0, (kind >> 8) as u8, kind as u8, 0, 1]);
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut buffer = [0; 1500];
    for _ in 0..3 {
        socket.send_to(&packet, ("224.0.0.251", 5353)).unwrap();
        if let Ok((n, _)) = socket.recv_from(&mut buffer) {
            return Some(buffer[..n].to_vec());
        }
    }
    None
}

#[test]
fn who_asks_for_the_name_gets_the_address_and_nobody_else_takes_it() {
    let label = format!("quiet-test-{}", std::process::id());
    let name = match LocalName::take(&label, HERE) {
        Ok(name) => name,
        Err(why) => return skip(Why::Machine(why)),
    };
    assert_eq!(name.name(), format!("{label}.local"));
    // In any case of letters; the number and the question come back, and the address is good for 10 s at most.
    let answer = ask(&label.to_uppercase(), 1).expect("an answer");
    assert_eq!(answer[..12], [0xAB, 0xCD, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0], "{answer:?}");
    let end = [0, 1, 0, 1, 0, 0, 0, 10, 0, 4, 127, 0, 0, 1];
    assert!(answer.ends_with(&end), "{answer:?}");
    // IPv6: there is none, and that is said at once (NSEC, type 47).
    let none = ask(&label, 28).expect("an answer");
    assert!(none.ends_with(&[0, 1, 0x40]) && none.windows(2).any(|two| two == [0, 47]), "{none:?}");
    assert_eq!(ask("quiet-test-nobody", 1), None);
    // Another address of this machine asks before it takes the name, and is told.
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let refused = LocalName::take(&label, other).unwrap_err();
    assert!(refused.contains("127.0.0.1 has the name"), "{refused}");
    drop(name);
    assert_eq!(ask(&label, 1), None, "it is taken back");
}
