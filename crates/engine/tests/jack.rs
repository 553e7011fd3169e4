//! The engine as a client of a JACK server without a card: what a neighbour hears is what the strip makes offline, to the bit, on one
//! CPU and on two.
#![cfg(feature = "audio")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use jack::{AudioIn, ClientOptions, Control, contrib::ClosureProcessHandler};
use quiet_dsp::{Block, Stage as _, strip::Strip};
use quiet_engine::{
    AudioHost, ProcessSpec, SeatWish, SecondThread, Setup, open,
    render::{Description, Files},
    setup::{Connect, Ports},
    two_cpus,
};
use quiet_testing::{JackServer, Why, output_with_me, program, skip, until_within};
use quiet_types::{Frames, SampleRate};
use std::{process::Command, sync::mpsc, time::Duration};

/// Says the inner test that it is that.
const INNER: &str = "QUIETCORES_TEST_JACK";
const NAME: &str = "a_neighbour_hears_what_the_strip_makes";
const PERIOD: usize = 64;
const PATIENCE: Duration = Duration::from_secs(100);
/// Noise that begins anew with the strip, then what remembers.
const STRIP: &str = "[strip]\nchannels = 1\n[[stage]]\nkind = \"dither\"\nbits = 8\n
[[stage]]\nkind = \"biquad\"\ntype = \"peak\"\nfrequency = 900.0\nq = 1.0\ngain = 5.0\n
[[stage]]\nkind = \"delay\"\ntime = 3.0\n[[stage]]\nkind = \"gain\"\ngain = -3.0\n";

#[test]
fn a_neighbour_hears_what_the_strip_makes() {
    if std::env::var_os(INNER).is_some() {
        return inner();
    }
    if program("jackd").is_none() {
        return skip(Why::Program("jackd", "jackd2"));
    }
    let server = "quietcores-engine";
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("jackd.log");
    let _jackd = JackServer::start(server, PERIOD as u32, &log).unwrap();
    // The library reads the server's name from the environment, so the clients are in a process of their own.
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", NAME, "--nocapture"]).env(INNER, "1").env("JACK_DEFAULT_SERVER", server);
    let done = output_with_me(&mut inner).unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    let jackd = std::fs::read_to_string(log).unwrap_or_default();
    assert!(done.status.success(), "{said}\n{jackd}");
}

fn strip(setting: ProcessSpec) -> Strip {
    let description = Description::parse(STRIP, "test").unwrap();
    description.prepare(1, setting.rate, setting.block, &mut Files::here()).unwrap()
}

fn inner() {
    jack::set_logger(jack::LoggerType::None);
    let sink = until_within(PATIENCE, "the server", || {
        jack::Client::new("sink", ClientOptions::NO_START_SERVER).ok()
    });
    let port = sink.0.register_port("in", AudioIn::default()).unwrap();
    let (tell, heard) = mpsc::sync_channel(1 << 16);
    let listen = ClosureProcessHandler::new(move |_: &jack::Client, scope: &jack::ProcessScope| {
        for part in port.as_slice(scope).as_chunks::<PERIOD>().0 {
            // What overflows shows as what is missing.
            let _ = tell.try_send(part.map(f32::to_bits));
        }
        Control::Continue
    });
    let sink = sink.0.activate_async((), listen).unwrap();
    for cpus in [1, 2] {
        let host = AudioHost::Jack(Ports { name: "strip".to_owned(), connect: Connect::Physical });
        let setup = Setup {
            host,
            rate: SampleRate(48_000),
            period: Frames(PERIOD as u32),
            buffer: Frames(2 * PERIOD as u32),
            channels: 1,
            inputs: 1,
            outputs: 1,
            wish: SeatWish { priority: 50, ..Default::default() },
        };
        let opened = open(&setup).unwrap();
        let setting = opened.setting();
        assert_eq!((setting.rate.0, setting.block.0 as usize), (48_000, PERIOD));
        let second = (cpus == 2).then(|| {
            let (cutter, bench) = two_cpus(opened.clock(), true);
            (cutter, SecondThread::anywhere(bench).unwrap())
        });
        let ready = match &second {
            Some((cutter, _)) => cutter.cut(strip(setting), setting).unwrap().strip,
            None => Box::new(strip(setting)),
        };
        while heard.try_recv().is_ok() {}
        let mut engine = opened.start(ready).unwrap();
        until_within(PATIENCE, "a connection", || {
            sink.as_client().connect_ports_by_name("strip:out_1", "sink:in").ok()
        });
        let silence = [0; PERIOD];
        let mut got = Vec::new();
        // What is silent for a minute has nothing to say.
        for _ in 0..750 * 60 {
            let next = heard.recv_timeout(PATIENCE).unwrap();
            if next != silence || !got.is_empty() {
                got.push(next);
            }
            if got.len() == 1500 {
                break;
            }
        }
        assert_eq!(got.len(), 1500, "on {cpus} CPUs: silent");
        engine.stop().unwrap();
        drop(engine);
        drop(second);
        // The beginning was made before somebody listened: it is found in what a strip makes of silence.
        let mut whole = strip(setting);
        let mut made = |_| {
            let mut work = [0.0; PERIOD];
            whole.process(&mut Block::new(&mut work, 1));
            work.map(f32::to_bits)
        };
        let from = (0..750 * 300).map(&mut made).position(|period| period == got[0]);
        let from = from.unwrap_or_else(|| panic!("on {cpus} CPUs: nothing like it is made"));
        for (n, period) in got.iter().enumerate().skip(1) {
            assert!(*period == made(n), "on {cpus} CPUs: another at period {n} after {from}");
        }
    }
}
