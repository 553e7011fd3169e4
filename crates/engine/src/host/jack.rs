//! A client of JACK, or of PipeWire in JACK's clothes: the server calls, and the same block sounds.

use super::pipewire::{Library, Times, Unready};
use crate::{
    Error, ErrorKind, Result,
    place::{Counting, Placed},
    playing::{Place, Playing, fault},
    setup::{Connect, Ports},
};
use jack::{
    AsyncClient, AudioIn, AudioOut, ClientOptions, Control, LatencyType, NotificationHandler, Port,
    PortFlags, ProcessHandler, ProcessScope,
};
use quiet_dsp::simd::Denormals;
use quiet_rt::{Board, Cycle, Xrun};
use quiet_types::{Frames, SampleRate, play::Hits};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
    mpsc::{self, SyncSender},
};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
};

/// A client that does not play yet.
pub struct Client {
    client: jack::Client,
    inputs: Vec<Port<AudioIn>>,
    outputs: Vec<Port<AudioOut>>,
    connect: Connect,
    /// PipeWire's library, where it is that.
    pipewire: Option<Library>,
}

fn cannot(doing: &str, e: jack::Error) -> Error {
    let sentence = format!(
        "cannot {doing}: {e}; start a server first (`jackd -d alsa ...`), or run this under \
         `pw-jack` where PipeWire serves"
    );
    Error::of(ErrorKind::Device, sentence).because(e)
}

impl Client {
    pub(crate) fn open(ports: &Ports, inputs: usize, outputs: usize) -> Result<Client> {
        // The library prints on its own accord; what matters comes as errors.
        jack::set_logger(jack::LoggerType::None);
        let (client, _) = jack::Client::new(&ports.name, ClientOptions::NO_START_SERVER)
            .map_err(|e| cannot("reach a JACK server", e))?;
        let port = |e| cannot("make ports", e);
        let inputs = (1..=inputs)
            .map(|n| client.register_port(&format!("in_{n}"), AudioIn::default()))
            .collect::<std::result::Result<_, _>>()
            .map_err(port)?;
        let outputs = (1..=outputs)
            .map(|n| client.register_port(&format!("out_{n}"), AudioOut::default()))
            .collect::<std::result::Result<_, _>>()
            .map_err(port)?;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let pipewire = Library::mapped(&maps);
        Ok(Client { client, inputs, outputs, connect: ports.connect, pipewire })
    }

    /// Rate and period.
    pub(crate) fn sizes(&self) -> (SampleRate, Frames) {
        (SampleRate(self.client.sample_rate()), Frames(self.client.buffer_size()))
    }

    pub(crate) fn about(&self) -> String {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        let server = self.pipewire.map_or("", |_| " (PipeWire serves)");
        format!("jack: client {}{server}, {inputs} in, {outputs} out", self.client.name())
    }

    pub(crate) fn start(self, playing: Playing, place: Place) -> Result<(Active, Placed)> {
        let (say, hear) = mpsc::sync_channel(1);
        let xruns = Arc::new(AtomicU64::new(0));
        let board = playing.board.clone();
        let failed = Arc::new(OnceLock::new());
        let names = |ports: Vec<Option<String>>| ports.into_iter().flatten().collect::<Vec<_>>();
        let ours_in = names(self.inputs.iter().map(|p| p.name().ok()).collect());
        let ours_out = names(self.outputs.iter().map(|p| p.name().ok()).collect());
        let samples = vec![0.0; playing.channels * playing.period];
        let cycle =
            Cycle::new(playing.clock, playing.board.clone(), playing.channels, playing.period_ns);
        let handler = Handler {
            inputs: self.inputs,
            outputs: self.outputs,
            playing,
            cycle,
            samples,
            xruns: xruns.clone(),
            seen: 0,
            unready: self.pipewire.map(Unready::new),
            owed: 0,
            fault: failed.clone(),
            placing: Some(Placing { placed: place.prepare(), place: place.clone(), say }),
        };
        let notices = Notices { xruns };
        let client = self
            .client
            .activate_async(notices, handler)
            .map_err(|e| cannot("activate the JACK client", e))?;
        let placed = hear.recv_timeout(std::time::Duration::from_secs(5)).map_err(|_| {
            Error::of(ErrorKind::Device, "the JACK server did not start the client's thread")
        })?;
        match self.connect {
            Connect::Physical => connect(client.as_client(), &ours_in, &ours_out),
            Connect::Own => {
                for (ours_in, ours_out) in ours_in.iter().zip(&ours_out) {
                    client
                        .as_client()
                        .connect_ports_by_name(ours_out, ours_in)
                        .map_err(|e| cannot("connect the client to itself", e))?;
                }
            }
        }
        let ends = ours_in.into_iter().next().zip(ours_out.into_iter().next());
        let (last, placed_too) = (AtomicU64::new(0), placed.clone());
        let client = Some(client);
        let connect = self.connect;
        let active = Active { client, board, last, place, placed, ends, connect, failed };
        Ok((active, placed_too))
    }
}

/// To the first physical ports; where there are none, somebody else connects.
fn connect(client: &jack::Client, ours_in: &[String], ours_out: &[String]) {
    let audio = Some("32 bit float mono audio");
    let from = client.ports(None, audio, PortFlags::IS_PHYSICAL | PortFlags::IS_OUTPUT);
    let to = client.ports(None, audio, PortFlags::IS_PHYSICAL | PortFlags::IS_INPUT);
    for (port, ours) in from.iter().zip(ours_in) {
        let _ = client.connect_ports_by_name(port, ours);
    }
    for (ours, port) in ours_out.iter().cycle().zip(&to) {
        let _ = client.connect_ports_by_name(ours, port);
    }
}

/// Most xruns that are counted in one block, so that a flood of them costs little.
const PER_BLOCK: u64 = 64;

struct Handler {
    inputs: Vec<Port<AudioIn>>,
    outputs: Vec<Port<AudioOut>>,
    playing: Playing,
    cycle: Cycle<crate::Ticks, Arc<Board>>,
    samples: Vec<f32>,
    xruns: Arc<AtomicU64>,
    /// Xruns of the server that were taken over.
    seen: u64,
    /// On PipeWire, the cycles that it left without a block of ours.
    unready: Option<Unready>,
    /// Xruns that are not counted yet.
    owed: u64,
    /// What a stage said that failed.
    fault: Arc<OnceLock<String>>,
    /// Until the first call: the server has a thread for messages, too, and its own notice of a
    /// new thread comes from there.
    placing: Option<Placing>,
}

impl Handler {
    /// Counts what the server told since the last block and what was found in the last, up to
    /// `most`: the rest has its turn with the next.
    fn count(&mut self, most: u64) {
        let told = self.xruns.load(Relaxed);
        self.owed += told - self.seen;
        self.seen = told;
        let new = self.owed.min(most);
        self.owed -= new;
        for _ in 0..new {
            let xrun = Xrun { capture: true, playback: true, missed: 1 };
            self.cycle.xrun(xrun, &mut self.playing.told);
        }
    }
}

struct Placing {
    place: Place,
    placed: Placed,
    say: SyncSender<Placed>,
}

impl ProcessHandler for Handler {
    fn process(&mut self, client: &jack::Client, scope: &ProcessScope) -> Control {
        if let Some(mut placing) = self.placing.take() {
            // Once, and in silence: a few system calls.
            placing.place.settle_as_it_is(&mut placing.placed);
            let _ = placing.say.try_send(placing.placed);
            for port in &mut self.outputs {
                port.as_mut_slice(scope).fill(0.0);
            }
            return Control::Continue;
        }
        let _flushed = Denormals::flush();
        if let Some(unready) = &mut self.unready {
            self.owed += times(scope).map_or(0, |now| unready.begin(now, scope.n_frames(), slept));
        }
        self.count(PER_BLOCK);
        let Playing { player, told, board, channels, period, .. } = &mut self.playing;
        if board.stopped() {
            for port in &mut self.outputs {
                port.as_mut_slice(scope).fill(0.0);
            }
            return Control::Continue;
        }
        let frames = scope.n_frames() as usize;
        // In pieces where the server has come to call for more than the strip was prepared for.
        for at in (0..frames).step_by((*period).max(1)) {
            let here = (*period).min(frames - at);
            let samples = &mut self.samples[..*channels * here];
            for (n, plane) in samples.chunks_exact_mut(here).enumerate() {
                match self.inputs.get(n) {
                    Some(port) => plane.copy_from_slice(&port.as_slice(scope)[at..at + here]),
                    None => plane.fill(0.0),
                }
            }
            // A panic must not reach the server's own code. The unwinding of a fault may allocate; no block does.
            let run = AssertUnwindSafe(|| self.cycle.run(player, samples, told));
            if let Err(panic) = catch_unwind(run) {
                let _ = self.fault.set(fault(&*panic).to_string());
                board.stop();
                samples.fill(0.0);
            }
            for (n, port) in self.outputs.iter_mut().enumerate() {
                let plane = &samples[(n % *channels) * here..][..here];
                port.as_mut_slice(scope)[at..at + here].copy_from_slice(plane);
            }
        }
        if let Some(unready) = &mut self.unready {
            let usecs = client.time();
            self.owed +=
                times(scope).map_or(0, |now| unready.end(now, usecs, scope.n_frames(), slept));
        }
        Control::Continue
    }
}

/// How often this thread slept so far.
fn slept() -> u64 {
    quiet_linux::sys::process::thread_usage().map_or(0, |[_, _, (_, slept), _]| slept)
}

/// Of the cycle, as the library has it now.
fn times(scope: &ProcessScope) -> Option<Times> {
    let now = scope.cycle_times().ok()?;
    Some(Times {
        frames: now.current_frames,
        usecs: now.current_usecs,
        next: now.next_usecs,
        period: now.period_usecs,
    })
}

struct Notices {
    xruns: Arc<AtomicU64>,
}

impl NotificationHandler for Notices {
    fn xrun(&mut self, _: &jack::Client) -> Control {
        self.xruns.fetch_add(1, Relaxed);
        Control::Continue
    }
}

/// A client that plays.
pub(crate) struct Active {
    client: Option<AsyncClient<Notices, Handler>>,
    board: Arc<Board>,
    last: AtomicU64,
    place: Place,
    placed: Placed,
    /// Names of our first input and output.
    ends: Option<(String, String)>,
    connect: Connect,
    failed: Arc<OnceLock<String>>,
}

impl Active {
    /// Blocks since this was last asked: none in a while means that the server is gone.
    pub(crate) fn moved(&self) -> bool {
        let now = self.board.blocks.load(Relaxed);
        self.last.swap(now, Relaxed) != now
    }

    /// Frames from our first output to our first input, as the server has it; `None` where it says
    /// nothing.
    pub(crate) fn way(&self) -> Option<Frames> {
        let (input, output) = self.ends.as_ref()?;
        let client = self.client.as_ref()?.as_client();
        if self.connect == Connect::Own {
            return Some(Frames(client.buffer_size()));
        }
        let captured = client.port_by_name(input)?.get_latency_range(LatencyType::Capture).1;
        let played = client.port_by_name(output)?.get_latency_range(LatencyType::Playback).1;
        (captured + played > 0).then_some(Frames(captured + played))
    }

    pub(crate) fn stop(mut self) -> Result<Hits> {
        // Before the thread is sent away.
        let mut counted = BTreeMap::new();
        Counting::since_placed(&self.placed).end(false, &mut counted);
        if let Some(client) = self.client.take() {
            let (_, _, mut handler) =
                client.deactivate().map_err(|e| cannot("leave the JACK server", e))?;
            // Told after the last block: no block will count them.
            handler.count(u64::MAX);
        }
        if let Some(fault) = self.failed.get() {
            return Err(Error::of(ErrorKind::Fault, fault));
        }
        let mut hits = self.place.interrupts(&self.placed);
        hits.thread.extend(counted);
        Ok(hits)
    }
}
