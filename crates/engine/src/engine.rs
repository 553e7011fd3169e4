//! An engine that plays: a device, a strip, and the thread between them.

use crate::{
    Error, ErrorKind, Result,
    clock::{self, Ticks},
    halves::{SecondRest, SecondSide},
    host::{
        Again, Device, Polled,
        file::File,
        hda::Hda,
        null,
        oob::{OutOfBand, Stage},
    },
    neighbours,
    place::{self, Counting, Placed, SeatWish, Wait},
    player::{ReadyStrip, Remote, player},
    playing::{Place, Playing, fault},
    setup::{AudioHost, Setup, Sizes},
};
use quiet_dsp::{ProcessSpec, simd::Denormals};
use quiet_linux::{
    Root,
    marks::Marks,
    rights::Less,
    seat,
    sys::{memory, sched},
    walls::Walls,
};
use quiet_rt::{Board, Cycle, End, LoopMode, duplex};
use quiet_types::{Frames, Nanos, SampleRate, play::Hits};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The engine's thread, where it belongs before anything is opened or read: what takes root's rights is done, and this
/// process needs them no more.
#[derive(Debug)]
pub struct SeatedThread {
    thread: JoinHandle<Option<Outcome>>,
    /// What it is to do.
    work: mpsc::SyncSender<Work>,
    place: Place,
    placed: Placed,
}

type Outcome = (Result<()>, Hits);
type Work = Box<dyn FnOnce(&Place, &Placed) -> Outcome + Send>;

/// Starts the engine's thread and puts it where it will play: CPU, priority, shield, locked memory. Then the thread gives
/// `less` up for itself and goes behind the walls; the caller's own rights are the caller's business.
///
/// # Errors
/// A sentence, when this machine cannot do it, or a right cannot be given up.
pub fn seat(wish: &SeatWish, less: Option<(Less, Arc<Walls>)>) -> Result<SeatedThread> {
    let root = Root::system()?;
    let _turn = neighbours::turn(&root, wish.shield.as_ref());
    seat_as(root, neighbours::PLAYS, wish, less)
}

fn seat_as(
    root: Root,
    name: &str,
    wish: &SeatWish,
    less: Option<(Less, Arc<Walls>)>,
) -> Result<SeatedThread> {
    let mut decision = place::decide(&root, wish)?;
    decision.findings.extend(clock::doubt(&root));
    SeatedThread::take(name, Place { root: Arc::new(root), wish: wish.clone(), decision }, less)
}

impl SeatedThread {
    fn take(name: &str, place: Place, less: Option<(Less, Arc<Walls>)>) -> Result<SeatedThread> {
        memory::keep_freed();
        seat::all_keep_off(&place.decision.off);
        let (say, hear) = mpsc::sync_channel(1);
        let (work, told) = mpsc::sync_channel::<Work>(1);
        let own = place.clone();
        let body = move || {
            let mut placed = own.prepare();
            own.settle(&mut placed);
            // While it may still open the core's files.
            let (attached, refused) = match place::attach(&own.decision, &mut placed) {
                Ok(attached) => (attached, None),
                Err(error) => (None, Some(error)),
            };
            let less = less.map_or(Ok(()), |(less, walls)| {
                match attached {
                    Some(_) => less.give_up_but_nice()?,
                    None => less.give_up()?,
                }
                walls.close().map_err(|e| {
                    let sentence = format!("cannot go behind the walls: {e}");
                    Error::of(ErrorKind::Machine, sentence).because(e)
                })
            });
            let ready = refused.map_or(Ok(()), Err).and(less);
            let _ = say.send(ready.map(|()| placed.clone()));
            let work = told.recv().ok()?;
            let outcome = work(&own, &placed);
            drop(attached);
            Some(outcome)
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body).map_err(|e| {
            let sentence = format!("cannot start the engine's thread: {e}");
            Error::of(ErrorKind::Machine, sentence).because(e)
        })?;
        match hear.recv() {
            Ok(Ok(placed)) => Ok(SeatedThread { thread, work, place, placed }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(ended()),
        }
    }
}

/// The thread that plays the back halves of strips on a second CPU; it ends when this is dropped.
#[derive(Debug)]
pub struct SecondThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<Outcome>>>,
    /// Where it was put, as the kernel says; `None` where that is left to the kernel.
    pub placed: Option<Placed>,
}

impl Drop for SecondThread {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SecondThread {
    /// One without a place of its own, for files.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn anywhere(mut bench: SecondSide) -> Result<SecondThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let body = move || {
            bench.serve(&told, SecondRest::Sleep);
            None
        };
        let thread = thread::Builder::new().name(neighbours::PLAYS_TOO.to_owned()).spawn(body);
        let thread = thread.map_err(|e| {
            let sentence = format!("cannot start the second thread: {e}");
            Error::of(ErrorKind::Machine, sentence).because(e)
        })?;
        Ok(SecondThread { stop, thread: Some(thread), placed: None })
    }
}

impl SeatedThread {
    /// Has it play its part of strips.
    ///
    /// # Errors
    /// When it has ended.
    pub fn serve(self, mut bench: SecondSide) -> Result<SecondThread> {
        let SeatedThread { thread, work, placed, .. } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let body = move |place: &Place, placed: &Placed| {
            let marks = Marks::now();
            let rest = match placed.mode {
                LoopMode::NeverSleep => SecondRest::Never,
                LoopMode::Sleep => SecondRest::Sleep,
            };
            bench.serve(&told, rest);
            let hits = place.hits(marks, placed);
            let _ = sched::set_scheduling(0, place::ordinary());
            (Ok(()), hits)
        };
        work.send(Box::new(body)).map_err(|_| ended())?;
        Ok(SecondThread { stop, thread: Some(thread), placed: Some(placed) })
    }
}

/// A place for the second thread of a strip on two CPUs: the next shielded CPU beside the one of `wish`, by the same road.
/// Without a shield the kernel chooses, and the thread sleeps for moments.
///
/// # Errors
/// As [`seat()`]; when the shield has no second CPU.
pub fn seat_second(wish: &SeatWish, less: Option<(Less, Arc<Walls>)>) -> Result<SeatedThread> {
    let root = Root::system()?;
    let _turn = neighbours::turn(&root, wish.shield.as_ref());
    let others = neighbours::cpus(&root, wish.shield.as_ref());
    seat_as(root, neighbours::PLAYS_TOO, &place::second(wish, &others)?, less)
}

enum Card {
    Null(null::Null),
    File(File),
    Hda(Box<Hda>),
    #[cfg(feature = "audio")]
    Alsa(Box<crate::host::alsa::Alsa>),
    #[cfg(feature = "audio")]
    Jack(Box<crate::host::jack::Client>),
}

/// A device that is open and does not play yet: what a strip has to be prepared for is known.
pub struct Opened {
    card: Card,
    setup: Setup,
    /// Where it will play; a seat that is taken already.
    place: Place,
    seat: Option<SeatedThread>,
    clock: Ticks,
    /// What it really is.
    pub rate: SampleRate,
    /// What it really is.
    pub period: Frames,
    /// What it really is.
    pub buffer: Frames,
    /// What to know about the device, in one line.
    pub about: String,
    /// The longest work of a block that is expected.
    work: Nanos,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("about", &self.about).finish_non_exhaustive()
    }
}

/// Opens the device, and decides where the thread will run.
///
/// # Errors
/// A sentence, when the setup makes no sense, this machine cannot do it, or the device cannot be
/// opened.
pub fn open(setup: &Setup) -> Result<Opened> {
    open_from(setup, None)
}

/// The same for a thread that has its seat. A server's client is called by the server's thread, and takes none.
///
/// # Errors
/// As [`open`].
pub fn open_from(setup: &Setup, seat: Option<SeatedThread>) -> Result<Opened> {
    setup.check()?;
    memory::keep_freed();
    let root = Root::system()?;
    let clock = Ticks::calibrated(&root);
    let Setup { mut rate, mut period, mut buffer, .. } = *setup;
    let mut wish = setup.wish.clone();
    let (card, about) = match &setup.host {
        AudioHost::Null(cable) => {
            let card = null::Null::new(clock, rate, period, buffer, *cable);
            (Card::Null(card), "null: a card that does not exist".to_owned())
        }
        AudioHost::File { input, output } => {
            let file = File::open(input, output, setup.channels, period)?;
            (rate, buffer) = (file.rate(), period);
            // It never waits for anything: nothing to be awake for.
            wish.mode = Some(Wait::Sleep);
            (Card::File(file), format!("{} to {}", input.display(), output.display()))
        }
        AudioHost::Hda(from) => {
            let card = Hda::open(from, setup, clock)?;
            Sizes { rate, period, buffer } = card.sizes();
            let about = card.about();
            (Card::Hda(Box::new(card)), about)
        }
        #[cfg(feature = "audio")]
        AudioHost::Alsa(names) => {
            let card = crate::host::alsa::Alsa::open(names, setup)?;
            Sizes { rate, period, buffer } = card.sizes();
            let about = card.about();
            (Card::Alsa(Box::new(card)), about)
        }
        #[cfg(feature = "audio")]
        AudioHost::Jack(ports) => {
            let client = crate::host::jack::Client::open(ports, setup.inputs, setup.outputs)?;
            (rate, period) = client.sizes();
            buffer = Frames(2 * period.0);
            wish.mode = Some(Wait::Sleep);
            let about = client.about();
            (Card::Jack(Box::new(client)), about)
        }
    };
    let place = match &seat {
        Some(seat) => seat.place.clone(),
        None => {
            let mut decision = place::decide(&root, &wish)?;
            decision.findings.extend(clock::doubt(&root));
            Place { root: Arc::new(root), wish: wish.clone(), decision }
        }
    };
    let setup = Setup { wish, ..setup.clone() };
    let work = Nanos::ZERO;
    Ok(Opened { card, setup, place, seat, clock, rate, period, buffer, about, work })
}

impl Opened {
    /// What a strip is to be prepared for.
    pub fn setting(&self) -> ProcessSpec {
        ProcessSpec { rate: self.rate, channels: self.setup.channels, block: self.period }
    }

    /// The clock of the loop.
    pub fn clock(&self) -> Ticks {
        self.clock
    }

    /// Expects blocks that take `worst` at most: a thread that gets no priority asks for a slice that covers them.
    #[must_use]
    pub fn expecting(self, worst: Nanos) -> Opened {
        Opened { work: worst, ..self }
    }

    /// Begins to play.
    ///
    /// # Errors
    /// When the thread or the server's client cannot be started.
    pub fn start(self, strip: ReadyStrip) -> Result<Engine> {
        let channels = self.setup.channels;
        let (player, remote, told) = player(strip, channels, self.period, self.rate);
        let board = Arc::new(Board::new());
        let playing = Playing {
            player,
            told,
            board: board.clone(),
            clock: self.clock,
            channels,
            period: self.period.0 as usize,
            period_ns: self.period.lasting(self.rate).0,
            work: self.work,
        };
        let facts = Sizes { rate: self.rate, period: self.period, buffer: self.buffer };
        seat::all_keep_off(&self.place.decision.off);
        let gone = Arc::new(AtomicU64::new(0));
        let ratio = Arc::new(AtomicU64::new(0));
        let place = self.place;
        // Those that are called by a server have no thread of ours.
        #[cfg(feature = "audio")]
        let ours = !matches!(self.card, Card::Jack(_));
        #[cfg(not(feature = "audio"))]
        let ours = true;
        let seat = match self.seat {
            None if ours => Some(SeatedThread::take(neighbours::PLAYS, place.clone(), None)?),
            seat => seat,
        };
        let running = match self.card {
            Card::Null(card) => Running::begin_polled(card, playing, seat, gone.clone()),
            Card::File(card) => Running::begin(card, playing, seat, gone.clone()),
            Card::Hda(card) => Running::begin_polled(*card, playing, seat, gone.clone()),
            #[cfg(feature = "audio")]
            Card::Alsa(card) => {
                let mut card = *card;
                card.show_ratio(ratio.clone());
                Running::begin(card, playing, seat, gone.clone())
            }
            #[cfg(feature = "audio")]
            Card::Jack(client) => {
                let (client, placed) = client.start(playing, place)?;
                Ok((Running::Jack(Box::new(client)), placed))
            }
        };
        let (running, placed) = running?;
        Ok(Engine { board, remote, placed, running: Some(running), sizes: facts, gone, ratio })
    }
}

enum Running {
    Thread(JoinHandle<Option<Outcome>>),
    #[cfg(feature = "audio")]
    Jack(Box<crate::host::jack::Active>),
}

/// How often a device that is gone is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Running {
    /// The same for a device that the EVL core may keep time for.
    fn begin_polled<D: Polled + 'static>(
        device: D,
        playing: Playing,
        seat: Option<SeatedThread>,
        gone: Arc<AtomicU64>,
    ) -> Result<(Running, Placed)> {
        let placed = seat.as_ref().map(|seat| &seat.placed);
        let Some((evl, mode)) = placed.and_then(|placed| Some((placed.evl?, placed.mode))) else {
            return Running::begin(device, playing, seat, gone);
        };
        let never = mode == LoopMode::NeverSleep;
        let device = OutOfBand::new(device, evl, playing.clock, never, playing.period_ns);
        Running::begin(device, playing, seat, gone)
    }

    fn begin<D: Device + 'static>(
        mut device: D,
        mut playing: Playing,
        seat: Option<SeatedThread>,
        gone: Arc<AtomicU64>,
    ) -> Result<(Running, Placed)> {
        let SeatedThread { thread, work, placed, .. } = seat.ok_or_else(ended)?;
        let body = move |place: &Place, placed: &Placed| {
            let mut samples = vec![0.0; playing.channels * playing.period];
            let mode = placed.mode;
            place::cover(placed, playing.work, playing.period_ns);
            let _flushed = Denormals::flush();
            // Whatever ends this thread, a fault in a stage too: nobody is to believe that it plays.
            let _ends = Ends(playing.board.clone());
            let marks = Marks::now();
            let mut cycle = Cycle::new(
                playing.clock,
                playing.board.clone(),
                playing.channels,
                playing.period_ns,
            );
            let mut stage = Stage::of(placed.evl);
            let counting = Counting::begin(placed);
            let kept_out = loop {
                let (player, told) = (&mut playing.player, &mut playing.told);
                if let Err(error) = stage.enter() {
                    break Err(error);
                }
                let end = duplex(&mut cycle, &mut device, player, told, &mut samples, mode);
                stage.leave();
                match end {
                    End::Stopped => break Ok(()),
                    End::Gone => {
                        gone.fetch_add(1, Relaxed);
                        if !wait_for(&mut device, &playing.board) {
                            break Ok(());
                        }
                        cycle.pause();
                    }
                }
            };
            let mut counted = BTreeMap::new();
            counting.end(true, &mut counted);
            let mut hits = place.hits(marks, placed);
            hits.thread.extend(counted);
            hits.in_band = stage.in_band();
            // An ordinary thread again: what is left is no hurry, and may take its time.
            if placed.evl.is_none() {
                let _ = sched::set_scheduling(0, place::ordinary());
            }
            (kept_out.and(device.finish()), hits)
        };
        work.send(Box::new(body)).map_err(|_| ended())?;
        Ok((Running::Thread(thread), placed))
    }
}

fn ended() -> Error {
    Error::of(ErrorKind::Fault, "the engine's thread ended before it began")
}

/// Raises the stop word when it is dropped.
struct Ends(Arc<Board>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Waits until the device is back; `false` where it is over, or the engine is told to stop. It sleeps once at least: a device that can
/// be opened and not be played would keep the CPU for ever.
fn wait_for(device: &mut impl Device, board: &Board) -> bool {
    loop {
        let again = device.again();
        if matches!(again, Again::Over) || board.stopped() {
            return false;
        }
        thread::sleep(LOOK_AGAIN);
        if matches!(again, Again::Back) {
            return true;
        }
    }
}

/// An engine that plays.
pub struct Engine {
    board: Arc<Board>,
    /// Gives it orders and hears what happens.
    pub remote: Remote,
    placed: Placed,
    running: Option<Running>,
    sizes: Sizes,
    gone: Arc<AtomicU64>,
    ratio: Arc<AtomicU64>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl Engine {
    /// Its counters, which it writes while it plays.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Where it was put, as the kernel says.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// What it plays at.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// How often the device was gone.
    pub fn gone(&self) -> u64 {
        self.gone.load(Relaxed)
    }

    /// Capture frames for each playback frame where two cards run on two clocks; else `None`.
    pub fn ratio(&self) -> Option<f64> {
        let bits = self.ratio.load(Relaxed);
        (bits != 0).then(|| f64::from_bits(bits))
    }

    /// Whether it has ended by itself: the file is at its end, the server has gone.
    pub fn ended(&self) -> bool {
        self.board.stopped()
    }

    /// Whether blocks came since this was last asked; a server that has gone calls no more.
    pub fn moved(&self) -> bool {
        match &self.running {
            #[cfg(feature = "audio")]
            Some(Running::Jack(client)) => client.moved(),
            _ => true,
        }
    }

    /// Frames that the host keeps between capture and playback: the card's ring, or what a server
    /// says of its own; `None` where nobody knows.
    pub fn way(&self) -> Option<Frames> {
        match &self.running {
            #[cfg(feature = "audio")]
            Some(Running::Jack(client)) => client.way(),
            _ => Some(self.sizes.buffer),
        }
    }

    /// Ends it; says what hit its thread meanwhile.
    ///
    /// # Errors
    /// When what it made cannot be written.
    pub fn stop(&mut self) -> Result<Hits> {
        self.board.stop();
        match self.running.take() {
            None => Ok(Hits::default()),
            Some(Running::Thread(thread)) => match thread.join() {
                Ok(Some((Ok(()), hits))) => Ok(hits),
                Ok(Some((Err(error), _))) => Err(error),
                Ok(None) => Ok(Hits::default()),
                Err(panic) => Err(fault(&*panic)),
            },
            #[cfg(feature = "audio")]
            Some(Running::Jack(client)) => client.stop(),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// The mode as it is printed.
pub fn mode_name(mode: LoopMode) -> &'static str {
    match mode {
        LoopMode::NeverSleep => "never-sleep",
        LoopMode::Sleep => "sleep",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_rt::{Duplex, Look};
    use std::time::Instant;

    /// Opened at once, whenever it is asked.
    struct Opens;

    impl Duplex for Opens {
        fn look(&mut self) -> Look {
            Look::Gone
        }

        fn wait(&mut self) {}

        fn read(&mut self, _: &mut [f32]) {}

        fn write(&mut self, _: &[f32]) {}

        fn resync(&mut self) -> bool {
            false
        }
    }

    impl Device for Opens {
        fn again(&mut self) -> Again {
            Again::Back
        }
    }

    #[test]
    fn a_device_that_is_back_at_once_leaves_others_their_turn() {
        let before = Instant::now();
        assert!(wait_for(&mut Opens, &Board::default()));
        assert!(before.elapsed() >= LOOK_AGAIN);
    }
}
