//! `play`

use super::{typed, walled};
use crate::progress::Progress;
use crate::{asked, face, user};
use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_engine::{
    AudioHost, Cutter, Loaded, Placed, SeatWish, SeatedThread, SecondThread, Setup, Shelf, Sizes,
    Strips, Taster, Ticks, Wait, WantedStrip, admit,
    control::{Server, Session, private_dir},
    host::{
        null::Cable,
        taken::{HdaCard, HdaWays, HdaWish},
    },
    mode_name, open_from, seat, seat_second, taken_in_band, two_cpus,
};
use quiet_experiment::{Ward, least_buffer, put_back_overdue};
use quiet_linux::{
    Root, System,
    rights::{self, Less},
    walls::Walls,
};
use quiet_types::{
    CpuId, Finding, Frames, Nanos, SampleRate,
    loan::LoanEnd,
    machine::SchedulerCore,
    play::{Admission, Hits, Level, PlayStatus, Played, SCHEMA, TIGHT},
};
use std::{
    io::{self, BufRead, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// Play a strip: the engine that never sleeps
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores play --list
  quietcores play clean.toml --device hw:USB --rate 48000 --period 32
  quietcores play clean.toml --device hw:USB --shield --cpu 3
  quietcores play clean.toml --host jack
  quietcores play --host null --rate 96000 --period 16 --cpu 1 --mode never-sleep --for 60s

While it plays, orders may be typed: `help` shows them. The same go to the control socket as lines of JSON, see
docs/play.md; `quietcores top` and `quietcores serve` turn its knobs.")]
pub struct Args {
    /// The strip's description; without it, a wire
    pub strip: Option<PathBuf>,
    #[command(flatten)]
    pub(super) on: On,
    /// Put up a shield around the CPU that is played on, which ends with this program however that ends (root)
    #[arg(long)]
    shield: bool,
    /// How long; without it, until Ctrl-C
    #[arg(long = "for", value_name = "LENGTH")]
    length: Option<Nanos>,
    /// As whom root plays on once the thread has its place: a name or a number [default: who called
    /// sudo, else whose file the strip is, else root without its powers]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// CPUs for one strip: with 2 a second shielded CPU plays some of its branches at the same time, or its back half a period later
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    cores: u8,
    /// Play although the strip's worst block does not fit into a period
    #[arg(long)]
    force: bool,
    /// Where the control socket is, or `none` [default: play.sock in a private directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// What else may be read while it plays, beside the folders of the strip and of the presets: amps, IRs, strips
    /// to be swapped in [default: this folder, where no strip is named]
    #[arg(long, value_name = "DIR")]
    pub allow: Vec<PathBuf>,
    /// Where presets are kept [default: ~/.local/state/quietcores/presets]
    #[arg(long, value_name = "DIR")]
    pub presets: Option<PathBuf>,
    /// List the sound cards and what they can do
    #[cfg(feature = "audio")]
    #[arg(long)]
    list: bool,
    /// Listen to MIDI; SENDER is CLIENT:PORT or how its name begins, else somebody connects to us
    #[cfg(feature = "audio")]
    #[arg(long, value_name = "SENDER", num_args = 0..=1)]
    midi: Option<Option<String>>,
    /// A MIDI controller turns a parameter, or `bypass`: 7=out.gain, or 2/7=out.gain on channel 2
    #[cfg(feature = "audio")]
    #[arg(long, value_name = "NUMBER=PARAMETER")]
    cc: Vec<quiet_engine::midi::Turns>,
    /// Find the least buffer that works, then play with it
    #[arg(long)]
    find_buffer: bool,
    /// Print what came of it as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What to play on: shared with the measurements by sound.
#[derive(clap::Args, Clone)]
pub struct On {
    /// Where sound comes from and goes to
    #[arg(long, value_enum, default_value_t = HostName::usual())]
    pub host: HostName,
    /// Device of the host: for alsa a name such as hw:USB, for jack the client's name, for hda a PCI address such as 00:1b.0 or a
    /// card such as hw:0
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Host alsa: another device that captures, whose clock is bridged by a resampler; or `none`, and
    /// silence goes into the strip. With it, `--device none` plays nothing and captures alone
    #[arg(long, value_name = "NAME")]
    pub capture: Option<String>,
    /// Frames a second
    #[arg(long, default_value_t = 48_000)]
    pub rate: u32,
    /// Frames a period
    #[arg(long, default_value_t = 64)]
    pub period: u32,
    /// Frames in the card's ring [default: two periods]
    #[arg(long)]
    pub buffer: Option<u32>,
    /// Channels of the strip [default: those that its file names, else 2]
    #[arg(long)]
    pub channels: Option<usize>,
    /// CPU of the engine's thread [default: the first shielded one]
    #[arg(long, alias = "cpus", value_name = "N")]
    pub cpu: Option<u32>,
    /// How it waits for the card [default: never-sleep inside a shield, else sleep]
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,
    /// Priority under fifo, 1 to 99
    #[arg(long, value_name = "N", default_value_t = 85)]
    pub priority: u8,
    /// Who schedules the engine's thread: the kernel, or EVL (Xenomai 4) below it, with --host hda or --host null (root)
    #[arg(long, value_enum, default_value_t = CoreName::Kernel)]
    pub core: CoreName,
    /// Host null: a cable from output to input that delays by so many frames; negative inverts
    #[arg(long, value_name = "FRAMES", allow_negative_numbers = true)]
    pub cable: Option<f64>,
    /// Host hda: take the card although no IOMMU keeps it to its own memory. A fault of the card or of its driver can then write
    /// anywhere in this machine
    #[arg(long)]
    pub allow_dma: bool,
    /// Host file: the WAV file that comes in
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Host file: the WAV file that is made
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Where the journal of a shield is looked for
    #[arg(long, value_name = "DIR", default_value = quiet_shield::DEFAULT_STATE)]
    pub state: PathBuf,
}

/// Hosts as they are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostName {
    /// A card that does not exist, and keeps a card's deadlines
    Null,
    /// A file in, a file out
    File,
    /// An Intel-HDA sound card without the kernel's driver: polled, no interrupt, no system call (root)
    Hda,
    /// A sound card
    #[cfg(feature = "audio")]
    Alsa,
    /// A JACK server, or PipeWire's under pw-jack
    #[cfg(feature = "audio")]
    Jack,
}

impl HostName {
    /// Whether its period is a server's.
    pub fn is_server(self) -> bool {
        #[cfg(feature = "audio")]
        return self == HostName::Jack;
        #[cfg(not(feature = "audio"))]
        false
    }

    fn usual() -> HostName {
        #[cfg(feature = "audio")]
        return HostName::Alsa;
        #[cfg(not(feature = "audio"))]
        HostName::Null
    }
}

/// Modes as they are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// The thread spins on the card's pointers
    NeverSleep,
    /// The thread sleeps until the card wakes it
    Sleep,
}

/// Cores as they are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoreName {
    /// The kernel's own scheduler
    Kernel,
    /// EVL, the core of Xenomai 4
    Evl,
}

impl CoreName {
    /// As the rooms take it.
    pub fn of(self) -> SchedulerCore {
        match self {
            CoreName::Kernel => SchedulerCore::Kernel,
            CoreName::Evl => SchedulerCore::Evl,
        }
    }
}

impl ModeName {
    /// As the engine takes it.
    pub fn wait(self) -> Wait {
        match self {
            ModeName::NeverSleep => Wait::NeverSleep,
            ModeName::Sleep => Wait::Sleep,
        }
    }
}

impl On {
    /// Takes the card from the kernel's driver, until all who play on it have ended.
    fn hda(&self) -> anyhow::Result<HdaCard> {
        if !face::is_root() {
            bail!(
                "only root can take a sound card from the kernel's driver; run it as root, or play with --host alsa"
            );
        }
        let none = |name: &Option<String>| name.as_deref() == Some("none");
        let ways = HdaWays { plays: !none(&self.device), captures: !none(&self.capture) };
        let name = match (&self.device, &self.capture) {
            (Some(_), Some(_)) if !ways.plays && !ways.captures => {
                bail!("--device and --capture are `none` both: nothing is left to keep time")
            }
            (Some(device), _) if ways.plays => Some(device.clone()),
            (_, Some(capture)) if ways.captures => Some(capture.clone()),
            _ => None,
        };
        if self.allow_dma {
            face::say(
                "--allow-dma: where no IOMMU stands between, nothing keeps this card from any memory of this machine",
            );
        }
        Ok(HdaCard::take(&HdaWish {
            name,
            allow_dma: self.allow_dma,
            state: self.state.clone(),
            program: std::env::current_exe().context("cannot find the running program")?,
            ways,
            buffer: Frames(self.buffer.unwrap_or(2 * self.period).min(1 << 20)),
        })?)
    }

    /// As the engine takes it; the shield that is up is looked for.
    pub fn setup(&self) -> anyhow::Result<Setup> {
        // Before a card is taken from the kernel.
        if self.core == CoreName::Evl && !matches!(self.host, HostName::Null | HostName::Hda) {
            bail!(
                "--core evl plays with --host hda or --host null: any other host makes system calls of the kernel's, which take the \
                 thread off the EVL core"
            );
        }
        let host = match self.host {
            HostName::Null => AudioHost::Null(
                self.cable
                    .map(|delay| Cable { delay: delay.abs(), inverted: delay.is_sign_negative() }),
            ),
            HostName::File => match (&self.input, &self.output) {
                (Some(input), Some(output)) => {
                    AudioHost::File { input: input.clone(), output: output.clone() }
                }
                _ => bail!("the host file needs --input IN.wav and --output OUT.wav"),
            },
            HostName::Hda => AudioHost::Hda(self.hda()?),
            #[cfg(feature = "audio")]
            HostName::Alsa => {
                let playback = self.device.clone().unwrap_or_else(|| "hw:0".to_owned());
                let capture = self.capture.clone().unwrap_or_else(|| playback.clone());
                let named = |name: String| (name != "none").then_some(name);
                let (playback, capture) = (named(playback), named(capture));
                if playback.is_none() && capture.is_none() {
                    bail!(
                        "--device and --capture are `none` both: nothing is left to keep time; name \
                         one, or play with --host null"
                    );
                }
                AudioHost::Alsa(quiet_engine::setup::Names { playback, capture })
            }
            #[cfg(feature = "audio")]
            HostName::Jack => AudioHost::Jack(quiet_engine::setup::Ports {
                name: self.device.clone().unwrap_or_else(|| "quietcores".to_owned()),
                connect: quiet_engine::setup::Connect::Physical,
            }),
        };
        let (shield, lender) = match face::is_root() {
            true => {
                // Who plays is not to share.
                quiet_shield::take_back(&System, &self.state, LoanEnd::Sound, None)?;
                let shield = quiet_shield::current(&System, &self.state)?;
                let lender = asked::own_lender(shield.as_ref(), &self.state);
                (shield, lender)
            }
            false => asked::shield(&self.state),
        };
        let channels = self.channels.unwrap_or(2);
        Ok(Setup {
            host,
            rate: SampleRate(self.rate),
            period: Frames(self.period),
            buffer: Frames(self.buffer.unwrap_or(2 * self.period)),
            channels,
            inputs: channels,
            outputs: channels,
            wish: SeatWish {
                cpu: self.cpu.map(CpuId),
                mode: self.mode.map(ModeName::wait),
                priority: self.priority,
                shield,
                lender,
                core: self.core.of(),
                counted: false,
                cores: 1,
            },
        })
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "audio")]
    if args.list {
        return list(args.json);
    }
    // Before there are threads, which inherit it: nothing that is started from here gains a right.
    let bound = rights::no_new();
    let stop = face::interrupt()?;
    let progress = Progress::new();
    let mut setup = asked(&args, &progress)?;
    // Dropped after the engine.
    let mut ward = Ward::new(shield_wish(&args, &setup), &args.on.state, &stop, &progress);
    if args.shield {
        let applied = ward.raise().context("cannot put the shield up")?;
        setup.wish.lender = asked::own_lender(Some(&applied.shield), &args.on.state);
        setup.wish.shield = Some(applied.shield);
    }
    if args.find_buffer {
        let found = least_buffer(&setup, &stop, &progress)?;
        (setup.period, setup.buffer) = found;
    }
    if let AudioHost::File { .. } = setup.host {
        // It never waits for anything: nothing to be awake for.
        setup.wish.mode = Some(Wait::Sleep);
    }
    // Before anything of a stranger's is read: what takes root's rights is done, and they are given up.
    let less = less(&args, &setup)?;
    let walls = Arc::new(walled::build(&setup));
    let taster = taster(less.as_ref());
    let (taken, second) =
        seats(&args, &setup, less.as_ref().map(|less| (less.clone(), walls.clone())))?;
    if let Some(less) = &less {
        less.give_up().map_err(|why| anyhow!("{why}; play with --user root, or without root"))?;
        ward.give_up();
    }
    let (sounds, presets) = own_folders(&args);
    let reach = walled::Reach {
        allow: &args.allow,
        strip: args.strip.as_deref(),
        presets: presets.as_deref(),
        sounds: sounds.as_deref(),
        control: args.control.as_deref(),
    };
    let within = walled::close(&reach, &setup, &walls);
    if let Some(path) = &args.strip {
        let shape = Strips::shape(path, args.on.channels).map_err(|error| within.refused(error))?;
        (setup.channels, setup.inputs, setup.outputs) = (shape.width, shape.inputs, shape.outputs);
    }
    let opened = open_from(&setup, taken)?;
    let (setting, clock, about) = (opened.setting(), opened.clock(), opened.about.clone());
    let (strips, second) = Second::begin(second, Strips::new(setup.inputs), clock)?;
    let mut shelf: Box<dyn Shelf> = Box::new(within.around(strips, taster));
    let loaded = match &args.strip {
        Some(path) => shelf.load(&WantedStrip::Strip(path.clone()), setting)?,
        None => Loaded::wire(),
    };
    let (strip, admission) = admit(loaded.strip, setting, clock);
    fits(&loaded.name, &admission, &args)?;
    for note in &loaded.notes {
        face::say(note);
    }
    let engine = opened.expecting(admission.worst).start(strip)?;
    let mut placed = engine.placed().clone();
    placed.findings.extend(within.findings);
    second.iter().for_each(|second| second.announce(&mut placed));
    face::say(&about);
    announce_seat(engine.sizes(), &placed, less.as_ref(), bound);
    announce_strip(&loaded.name, &admission);
    announce_findings(&placed);
    let mut server = server(&args)?;
    server.iter().for_each(announce_socket);
    let mut session = Session::new(
        engine,
        shelf,
        (loaded.name, loaded.params, loaded.readings),
        admission,
        (setting, clock),
        presets,
    );
    let mut midi = Midi::open(&args, &session)?;
    let began = Instant::now();
    follow(&args, &mut session, (server.as_mut(), &mut midi), &stop, began);
    drop(server);
    let lasted = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let hits = session.stop()?;
    let status = session.status();
    session.tidy();
    second.iter().for_each(Second::tell_lost);
    drop(second);
    let exact = ward.lower()?;
    if let AudioHost::Hda(card) = setup.host {
        card.give_back()?;
    }
    let played = Played {
        schema: SCHEMA.to_owned(),
        strip: session.name().to_owned(),
        device: about,
        lasted,
        status,
        xruns: session.xruns().copied().collect(),
        findings: found(placed, &hits),
        hits,
        admission: session.admission(),
    };
    told(&played, args.json, exact)
}

fn announce_socket(server: &Server) {
    face::say(&format!("control socket: {}", server.path().display()));
}

/// Where this user's dropped sounds and presets are; without a control socket nobody asks for either.
fn own_folders(args: &Args) -> (Option<PathBuf>, Option<PathBuf>) {
    let is_asked = args.control.as_ref().is_none_or(|path| path.as_os_str() != "none");
    let own = || user::state_dir().filter(|_| is_asked).map(|dir| dir.join("presets"));
    (user::sounds_dir().filter(|_| is_asked), args.presets.clone().or_else(own))
}

/// A shield for the CPU that is played on, or for it and the next one.
fn shield_wish(args: &Args, setup: &Setup) -> quiet_experiment::ShieldWish {
    let cpus = |first: CpuId| (0..args.cores.into()).map(|n| CpuId(first.0 + n)).collect();
    quiet_experiment::ShieldWish {
        cpus: setup.wish.cpu.map(cpus),
        never_sleep: setup.wish.mode == Some(Wait::NeverSleep),
        ..Default::default()
    }
}

/// The places of the threads that can have theirs before anything is read: of the one that plays where it has rights to
/// give up, of the second one where it is asked for, and whether that one is waited for without an end.
#[allow(clippy::type_complexity, reason = "two places, each for one caller")]
fn seats(
    args: &Args,
    setup: &Setup,
    poorer: Option<(Less, Arc<Walls>)>,
) -> anyhow::Result<(Option<SeatedThread>, Option<(SeatedThread, bool)>)> {
    if args.cores > 1 && setup.wish.core == SchedulerCore::Evl {
        bail!("--core evl plays a strip on one CPU; leave out --cores, or --core");
    }
    let second = match args.cores {
        ..2 => None,
        // A file waits for it.
        _ => Some((
            seat_second(&setup.wish, poorer.clone())?,
            matches!(setup.host, AudioHost::File { .. }),
        )),
    };
    let first = match poorer {
        Some(poorer) => Some(seat(&setup.wish, Some(poorer))?),
        None => None,
    };
    Ok((first, second))
}

/// What to play on; where a shield is to go up, the machine is fit for one.
fn asked(args: &Args, progress: &Progress) -> anyhow::Result<Setup> {
    if args.shield && !face::is_root() {
        bail!("only root can put up a shield; leave out --shield, or run it as root");
    }
    if args.shield {
        put_back_overdue(&args.on.state, progress)?;
    }
    let mut setup = args.on.setup()?;
    setup.wish.cores = args.cores;
    if args.shield && setup.wish.shield.is_some() {
        bail!(
            "a shield is up already: leave out --shield to play in it, or run `quietcores revert`"
        );
    }
    Ok(setup)
}

/// Refuses a strip that cannot sound without gaps, unless that is wanted.
fn fits(name: &str, admission: &Admission, args: &Args) -> anyhow::Result<()> {
    if !admission.fits() && !args.force {
        let other = match args.cores {
            1 => ", share a strip of several stages between two CPUs with --cores 2",
            _ => "",
        };
        bail!(
            "the strip `{}` needs {} for its worst block, and a period lasts {}: it cannot sound \
             without gaps; choose a longer --period{other}, or hear them with --force",
            name,
            admission.worst,
            admission.period
        );
    }
    Ok(())
}

/// The second CPU of a strip.
struct Second {
    thread: SecondThread,
    cutter: Cutter,
}

impl Second {
    /// Has it play its part of these strips.
    fn begin(
        taken: Option<(SeatedThread, bool)>,
        strips: Strips,
        clock: Ticks,
    ) -> anyhow::Result<(Strips, Option<Second>)> {
        let Some((thread, patient)) = taken else { return Ok((strips, None)) };
        let (cutter, bench) = two_cpus(clock, patient);
        let thread = thread.serve(bench)?;
        Ok((strips.on_two_cpus(cutter.clone()), Some(Second { thread, cutter })))
    }

    /// Says where it is, and what was refused it.
    fn announce(&self, first: &mut Placed) {
        let Some(placed) = &self.thread.placed else { return };
        face::say(&format!("second CPU: {}", placement(placed)));
        let new = placed.findings.iter().filter(|finding| !first.findings.contains(finding));
        let new: Vec<_> = new.cloned().collect();
        first.findings.extend(new);
    }

    fn tell_lost(&self) {
        match self.cutter.lost() {
            0 => {}
            lost => face::say(&format!(
                "{lost} blocks lack what the second CPU plays: it was too late for them"
            )),
        }
    }
}

/// Says where and how the thread plays, and what it may no longer do.
fn announce_seat(sizes: Sizes, placed: &Placed, less: Option<&Less>, bound: io::Result<()>) {
    face::say(&format!(
        "{} frames a second, period {} ({}), buffer {} ({})",
        sizes.rate,
        sizes.period,
        sizes.period.lasting(sizes.rate),
        sizes.buffer,
        sizes.buffer.lasting(sizes.rate)
    ));
    face::say(&placement(placed));
    if let Some(less) = less {
        face::say(&given_up(less));
        if placed.evl.is_some() {
            face::say(
                "its thread alone keeps CAP_SYS_NICE, for which the EVL core asks at each call",
            );
        }
    }
    if let Err(error) = bound {
        face::say(&format!("the kernel does not keep this process from new rights: {error}"));
    }
}

/// Who tries strips before they are swapped in: started while this process may start another one.
fn taster(less: Option<&Less>) -> Option<Taster> {
    // This very program, also where a package has put another one in its place meanwhile.
    let started = Taster::start(Path::new("/proc/self/exe"), less);
    started.map_err(|error| face::say(&format!("{error}; a strip is swapped in untried"))).ok()
}

/// Says what was refused the thread, or is doubtful.
fn announce_findings(placed: &Placed) {
    placed.findings.iter().for_each(announce_finding);
}

/// What was found when it began, and at its end.
fn found(placed: Placed, hits: &Hits) -> Vec<Finding> {
    let strayed = taken_in_band(hits).inspect(announce_finding);
    placed.findings.into_iter().chain(strayed).collect()
}

fn announce_finding(finding: &Finding) {
    face::say(&format!(
        "- {} ({}). {} {}",
        finding.title, finding.evidence, finding.effect, finding.remedy
    ));
}

/// Says how much of a period the strip needs.
fn announce_strip(name: &str, admission: &Admission) {
    face::say(&format!(
        "strip `{}`: worst block {} of {} ({:.0} %){}",
        name,
        admission.worst,
        admission.period,
        admission.share() * 100.0,
        if admission.share() > TIGHT { ": little is left, expect xruns" } else { "" }
    ));
}

/// Prints what was played, and whether a shield left all as it was.
fn told(played: &Played, json: bool, exact: bool) -> anyhow::Result<ExitCode> {
    if json {
        face::print_json(played)?;
    } else {
        face::print(&text(played))?;
    }
    if !exact {
        face::say(
            "the shield is down; somebody else has changed some values meanwhile, and they were left",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// What root gives up once the thread has its place; `None` for who is not root, and where a server's thread plays, whose
/// place is had only when it first calls.
fn less(args: &Args, setup: &Setup) -> anyhow::Result<Option<Less>> {
    if !face::is_root() {
        if args.user.is_some() {
            bail!("--user says as whom root plays on, and this is not root");
        }
        return Ok(None);
    }
    #[cfg(feature = "audio")]
    if let AudioHost::Jack(_) = setup.host {
        if args.user.is_some() {
            bail!("--user: a JACK server serves its own user alone; run `play` as that user");
        }
        return Ok(None);
    }
    #[cfg(not(feature = "audio"))]
    let _ = setup;
    let root = Root::system()?;
    let asked = || user::asking().map(|user| user.owner.uid);
    let owner = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(args.strip.as_ref()?).ok().map(|about| about.uid())
    };
    let user = match &args.user {
        Some(name) => rights::user(&root, name),
        None => match asked().or_else(owner).filter(|uid| *uid != 0) {
            Some(uid) => rights::user(&root, &uid.to_string()),
            None => return Ok(Some(Less::Capabilities)),
        },
    };
    let user = user?;
    Ok(Some(if user.uid == 0 { Less::Capabilities } else { Less::User(user) }))
}

fn given_up(less: &Less) -> String {
    match less {
        Less::Capabilities => "root's powers are given up: it opens its own files alone".to_owned(),
        Less::User(user) => {
            format!("root's rights are given up: it plays on as {} (user {})", user.name, user.uid)
        }
    }
}

fn placement(placed: &Placed) -> String {
    use quiet_types::machine::Policy;
    let policy = match placed.scheduling.policy {
        Policy::Fifo => format!("fifo {}", placed.scheduling.priority),
        Policy::Rr => format!("rr {}", placed.scheduling.priority),
        _ => format!("an ordinary thread, nice {}", placed.scheduling.nice),
    };
    format!(
        "{}{}, CPU {}{}, {policy}, memory {}",
        mode_name(placed.mode),
        if placed.evl.is_some() { " on the EVL core" } else { "" },
        placed.allowed,
        if placed.shielded { " inside the shield" } else { "" },
        if placed.memory_locked { "locked" } else { "not locked" }
    )
}

fn server(args: &Args) -> anyhow::Result<Option<Server>> {
    let path = match &args.control {
        Some(path) if path.as_os_str() == "none" => return Ok(None),
        Some(path) => path.clone(),
        None => match private_dir() {
            Ok(dir) => {
                let usual = dir.join("play.sock");
                // Another engine may play already.
                match Server::listen(&usual) {
                    Ok(server) => return Ok(Some(server)),
                    Err(_) => dir.join(format!("play-{}.sock", std::process::id())),
                }
            }
            Err(error) => {
                face::say(&format!("no control socket: {error}"));
                return Ok(None);
            }
        },
    };
    Ok(Some(Server::listen(&path)?))
}

/// What is heard of MIDI, where it is asked for.
struct Midi {
    #[cfg(feature = "audio")]
    port: Option<quiet_engine::midi::Midi>,
}

impl Midi {
    #[cfg(feature = "audio")]
    fn open(args: &Args, session: &Session) -> anyhow::Result<Midi> {
        let Some(from) = &args.midi else {
            if !args.cc.is_empty() {
                bail!("--cc tells what a controller does, and nobody listens: add --midi");
            }
            return Ok(Midi { port: None });
        };
        if let Some(turn) = args.cc.iter().find(|t| t.param != "bypass" && !session.has(&t.param)) {
            bail!(
                "the strip `{}` has no parameter `{}` for controller {}; type `params` while it \
                 plays to see them",
                session.name(),
                quiet_types::printable(&turn.param, 60),
                turn.controller
            );
        }
        let wishes = quiet_engine::midi::Wishes { from: from.clone(), turns: args.cc.clone() };
        let port = quiet_engine::midi::Midi::open(&wishes)?;
        face::say(&format!("MIDI port: {}", port.address()));
        Ok(Midi { port: Some(port) })
    }

    #[cfg(not(feature = "audio"))]
    fn open(_: &Args, _: &Session) -> anyhow::Result<Midi> {
        Ok(Midi {})
    }

    fn turn(&mut self, session: &mut Session) -> Vec<String> {
        #[cfg(feature = "audio")]
        return self.port.as_mut().map(|port| port.turn(session)).unwrap_or_default();
        #[cfg(not(feature = "audio"))]
        {
            let _ = session;
            Vec::new()
        }
    }
}

/// Turns until it is over; the engine plays on a thread of its own.
fn follow(
    args: &Args,
    session: &mut Session,
    (mut server, midi): (Option<&mut Server>, &mut Midi),
    stop: &std::sync::atomic::AtomicBool,
    began: Instant,
) {
    let lines = lines_typed();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    bar.set_style(
        ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut shown = began;
    let mut moved = began;
    let over = |length: Nanos| began.elapsed() >= Duration::from_nanos(length.0);
    while !face::raised(stop)
        && !args.length.is_some_and(over)
        && !session.quits()
        && !session.engine().ended()
    {
        match &mut server {
            Some(server) => server.turn(session, Duration::from_millis(20)),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        session.tidy();
        for said in session.news().into_iter().chain(midi.turn(session)) {
            bar.suspend(|| face::say(&said));
        }
        while let Ok(line) = lines.try_recv() {
            let said = typed::carry_out(session, &line);
            bar.suspend(|| face::say(&said));
        }
        if session.engine().moved() {
            moved = Instant::now();
        } else if moved.elapsed() > Duration::from_secs(2) {
            bar.suspend(|| face::say("quietcores: the server calls no more: it has gone"));
            break;
        }
        // Somebody who does not look pays nothing, and leaves the levels to the socket.
        if !bar.is_hidden() && shown.elapsed() > Duration::from_millis(200) {
            shown = Instant::now();
            let status = session.status();
            bar.set_message(line(&status, session, began));
        }
    }
    bar.finish_and_clear();
}

/// Lines that are typed, where standard input is a terminal; else nobody types.
fn lines_typed() -> mpsc::Receiver<String> {
    let (say, hear) = mpsc::sync_channel(16);
    if io::stdin().is_terminal() {
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if !line.trim().is_empty() && say.send(line).is_err() {
                    return;
                }
            }
        });
    }
    hear
}

fn line(status: &PlayStatus, session: &Session, began: Instant) -> String {
    let meters = |(at, level): (usize, &Level)| {
        let (input, output) = (level.input, level.output);
        format!(
            "{:>2}  in [{}] {input:>6.1} dB  out [{}] {output:>6.1} dB",
            at + 1,
            meter(input),
            meter(output)
        )
    };
    let levels: Vec<String> = status.levels.iter().enumerate().map(meters).collect();
    let last = session
        .xruns()
        .next_back()
        .map_or(String::new(), |xrun| format!(", last at {:.1} s", xrun.at.as_secs_f64()));
    let ratio = status.ratio.map_or(String::new(), |r| format!("  ratio {r:.6}"));
    format!(
        "{}\n{:>7.1} s  load p50 {} %  p99 {} %  worst {} [{}]\nxruns {} (missed {}{last})  gone {}{ratio}",
        levels.join("\n"),
        began.elapsed().as_secs_f64(),
        status.load.p50,
        status.load.p99,
        status.load.worst,
        bars(&status.load.histogram),
        status.xruns,
        status.missed,
        status.gone,
    )
}

/// A peak level as a bar over the 60 dB below full scale; its end is `!` from full scale on.
fn meter(level: f32) -> String {
    const CELLS: usize = 20;
    let lit = ((level + 60.0) / 60.0 * CELLS as f32).round().clamp(0.0, CELLS as f32) as usize;
    let end = if level >= 0.0 { "!" } else { " " };
    format!("{}{}{end}", "=".repeat(lit), " ".repeat(CELLS - lit))
}

/// The load histogram in tenths of a period, each as high as its logarithm; the last is all
/// beyond the whole period.
fn bars(histogram: &[u64]) -> String {
    const HEIGHTS: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];
    let mut tenths = [0u64; 11];
    for (percent, n) in histogram.iter().enumerate() {
        tenths[(percent / 10).min(10)] += n;
    }
    tenths
        .iter()
        .map(|n| match n {
            0 => ' ',
            n => HEIGHTS[(n.ilog10() as usize).min(HEIGHTS.len() - 1)],
        })
        .collect()
}

fn text(played: &Played) -> String {
    let status = &played.status;
    let mut text = format!(
        "played {} for {:.1} s: {} blocks, {} xrun{}, {} period{} missed\n",
        played.strip,
        played.lasted.as_secs_f64(),
        status.blocks,
        status.xruns,
        if status.xruns == 1 { "" } else { "s" },
        status.missed,
        if status.missed == 1 { "" } else { "s" },
    );
    text.push_str(&format!(
        "DSP load: mean {:.1} %, p50 {} %, p99 {} %, worst block {} at {:.1} s of {}\n",
        status.load.mean,
        status.load.p50,
        status.load.p99,
        status.load.worst,
        status.load.worst_at.as_secs_f64(),
        played.admission.period
    ));
    text.push_str(&format!("longest time between two blocks: {}\n", status.between));
    if status.missed == 0 && played.lasted.0 > 0 {
        // None seen in T: below 3/T with 95 % confidence.
        let hours = played.lasted.as_secs_f64() / 3600.0;
        text.push_str(&format!(
            "no xrun seen: below {:.1} an hour with 95 % confidence\n",
            3.0 / hours
        ));
    }
    if status.broken > 0 {
        let cured = match (status.cured, status.bypassed) {
            (0, _) => String::new(),
            (n, false) => format!("; the strip was reset {n} times for it"),
            (n, true) => format!("; the strip was reset {} times for it, then taken out", n - 1),
        };
        text.push_str(&format!("{} samples were no numbers, and silenced{cured}\n", status.broken));
    }
    if let Some(ratio) = status.ratio {
        text.push_str(&format!(
            "two clocks: {ratio:.7} captured frames for each that was played ({:+.1} ppm)\n",
            (ratio - 1.0) * 1e6
        ));
    }
    for xrun in played.xruns.iter().take(20) {
        text.push_str(&format!("xrun at {:.3} s, {} missed\n", xrun.at.as_secs_f64(), xrun.missed));
    }
    if played.xruns.len() > 20 {
        text.push_str(&format!("... and {} more\n", played.xruns.len() - 20));
    }
    let hits: Vec<String> = played
        .hits
        .thread
        .iter()
        .chain(&played.hits.irqs)
        .filter(|(_, n)| **n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if let Some(times) = played.hits.in_band {
        text.push_str(&format!("on the EVL core: {times} switches in band\n"));
    }
    if let Some(ticks) = played.hits.ticks {
        text.push_str(&format!("on its CPU meanwhile: {ticks} ticks\n"));
    }
    if !hits.is_empty() {
        text.push_str(&format!("what hit it: {}\n", hits.join(", ")));
    }
    text
}

#[cfg(feature = "audio")]
fn list(json: bool) -> anyhow::Result<ExitCode> {
    use quiet_types::said::{Abilities, DEVICES, Devices};
    let devices = quiet_engine::host::alsa::list();
    if json {
        let schema = DEVICES.to_owned();
        face::print_json(&Devices { schema, devices })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for device in &devices {
        text.push_str(&format!("{:<16} {}\n", device.name, device.about));
        let mut one = |what: &str, abilities: &Option<Abilities>| {
            let Some(a) = abilities else { return };
            text.push_str(&format!(
                "  {what:<9} {}; {}-{} channels; {}-{} frames a second; periods {}-{}; buffers {}-{}\n",
                a.formats.join(" "),
                a.channels.0,
                a.channels.1,
                a.rates.0,
                a.rates.1,
                a.periods.0,
                a.periods.1,
                a.buffers.0,
                a.buffers.1
            ));
        };
        one("playback", &device.playback);
        one("capture", &device.capture);
    }
    if devices.is_empty() {
        text.push_str("no sound card here; `--host null` plays on one that does not exist\n");
    }
    face::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::meter;

    #[test]
    fn a_meter_is_as_long_as_it_is_loud_and_marks_full_scale() {
        assert_eq!(meter(-200.0), " ".repeat(21));
        assert_eq!(meter(f32::NEG_INFINITY), " ".repeat(21));
        assert_eq!(meter(-30.0), format!("{}{}", "=".repeat(10), " ".repeat(11)));
        assert_eq!(meter(0.0), format!("{}!", "=".repeat(20)));
        assert_eq!(meter(6.0), meter(0.0));
        assert_eq!(meter(f32::NAN).len(), 21);
    }
}
