//! The screen, drawn into memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_tui::{Cover, KeyPress, Screen, TopLook, TopOrder, draw};
use quiet_types::{
    CpuId, Nanos,
    live::{
        Deed, LIVE_SCHEMA, LiveCpu, LiveEvent, LiveEventKind, LiveShield, LiveSound, Moment,
        Occupant, OccupantKind, Quiet, QuietState, SoundWish, ThreadLook,
    },
    plan::ShieldStanding,
    play::{Knob, Knobs, Level, Load, PlayStatus, SoundReading},
};
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};
use std::sync::Arc;

const RICH: TopLook = TopLook { colour: true, unicode: true };
const PLAIN: TopLook = TopLook { colour: false, unicode: false };

fn occupant(
    kind: OccupantKind,
    name: &str,
    number: Option<u32>,
    ran: Option<u64>,
    foreign: bool,
) -> Occupant {
    Occupant { kind, name: name.into(), number, ran: ran.map(Nanos), times: 3, foreign }
}

fn cpu(id: u32, shielded: bool, occupants: Vec<Occupant>) -> LiveCpu {
    LiveCpu {
        id: CpuId(id),
        core: Some(id / 2),
        package: Some(0),
        cluster: "0-3".parse().unwrap(),
        online: true,
        shielded,
        busy: Some(if shielded { 0.02 } else { 0.5 }),
        stolen: Some(0.0),
        khz: None,
        device_interrupts: 0,
        ticks: 0,
        from_others: 0,
        occupants,
        more: 0,
    }
}

fn sound() -> LiveSound {
    let sound = LiveSound {
        name: "play.sock".into(),
        strip: "clean".into(),
        bypass: false,
        mute: true,
        status: PlayStatus {
            rate: 48_000,
            period: 64,
            buffer: 128,
            mode: "sleep".into(),
            cpus: "3".into(),
            real_time: true,
            shielded: true,
            blocks: 1,
            xruns: 2,
            missed: 1,
            dropped_events: 0,
            broken: 0,
            cured: 0,
            bypassed: false,
            gone: 0,
            load: Load {
                mean: 12.0,
                p50: 12,
                p99: 15,
                worst: Nanos(300_000),
                worst_at: Nanos(0),
                histogram: vec![],
            },
            between: Nanos(0),
            waiting: 0,
            levels: vec![Level { input: -6.0, output: -120.0 }],
            ratio: None,
        },
        last_xruns: vec![],
        readings: vec![],
        told: String::new(),
        late: 1,
    };
    LiveSound { told: quiet_live::sound_told(&sound.status), ..sound }
}

fn moment() -> Moment {
    let mut cpus: Vec<LiveCpu> = (0..3).map(|id| cpu(id, false, vec![])).collect();
    cpus[0].occupants =
        vec![occupant(OccupantKind::Thread, "firefox", Some(900), Some(250_000_000), false)];
    cpus.push(cpu(
        3,
        true,
        vec![
            occupant(OccupantKind::Thread, "burst-Ö", Some(77), Some(2_000_000), true),
            occupant(OccupantKind::Vector, "LOC", None, None, false),
        ],
    ));
    Moment {
        schema: LIVE_SCHEMA.into(),
        number: 7,
        at: "2026-11-24T12:34:56.789Z".into(),
        since: Nanos(250_000_000),
        quiet: Quiet {
            state: QuietState::Disturbed,
            sentence: "CPU 3 is not quiet: burst-Ö ran 2.00 ms on CPU 3.".into(),
            wrong: vec!["burst-Ö ran 2.00 ms on CPU 3".into()],
        },
        shield: Some(LiveShield {
            state: ShieldStanding::Up,
            cpus: "3".parse().unwrap(),
            housekeeping: "0-2".parse().unwrap(),
            mechanism: None,
            since: None,
            by: None,
            drift: vec![],
            intruders: vec![],
            astray: vec![],
            confirm: Some(12),
            guarded: true,
            lent: None,
        }),
        cpus,
        look: ThreadLook {
            number: 7,
            since: Nanos(500_000_000),
            took: Nanos(1),
            threads: 123,
            cut: false,
        },
        sounds: vec![sound()],
        probes: vec![],
        temperature: Some(48_500),
        events: vec![],
        unread: vec![],
        cost: 0.004,
    }
}

fn asked(wish: SoundWish) -> TopOrder {
    TopOrder::Sound { engine: "play.sock".into(), wish }
}

fn screen() -> Screen {
    let mut screen = Screen::new("CPU 3".into());
    let event = LiveEvent {
        at: "2026-11-24T12:34:56.000Z".into(),
        kind: LiveEventKind::Intruder,
        said: "CPU 3: burst-Ö ran 2.00 ms".into(),
    };
    screen.take(Arc::new(moment()), vec![event]);
    screen
}

fn drawn(screen: &Screen, look: TopLook, (width, height): (u16, u16)) -> (String, Buffer) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, look)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        cells.trim_end().to_owned()
    };
    ((0..height).map(line).collect::<Vec<_>>().join("\n"), buffer)
}

const SMALL: &str = "\
quietcores top 123 threads, seen every 0.5 s  0.4 % of a CPU  48 C  12:34:56 UTC
DISTURBED CPU 3 is not quiet: burst-? ran 2.00 ms on CPU 3.

CPUs  0  50% + 1  50%   2  50% +[3   2%]
clean  MUTED  CPU 3, 48000 Hz/64, DSP load 12 %, worst 300 us, late 1, xruns 2
  1 in  ############.   -6.0 dB   out ............. -120.0 dB
Who was there (the longest first; threads since the last look at them)
CPU 3   shield ........ !burst-? 2.00 ms  LOC x3
CPU 0          ####.... firefox 250 ms
CPU 1          ####....
CPU 2          ####....





What happened
12:34:56  CPU 3: burst-? ran 2.00 ms




put back in 12 s unless confirmed: press c
? help  p plan  a apply  c confirm  r revert  l lend  b bypass  m mute  q quit";

#[test]
fn eighty_by_twenty_four_without_colour_and_unicode_says_all() {
    let (text, buffer) = drawn(&screen(), PLAIN, (80, 24));
    assert!(text.is_ascii(), "{text}");
    assert_eq!(text, SMALL, "\n{text}");
    let coloured =
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
    assert!(!coloured, "there is a colour");
}

#[test]
fn with_colour_a_stranger_is_red_and_with_unicode_names_are_whole() {
    let (text, buffer) = drawn(&screen(), RICH, (120, 30));
    assert!(text.contains("!burst-Ö 2.00 ms") && text.contains("█"), "{text}");
    assert!(buffer.content().iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn no_size_and_no_machine_is_trouble() {
    let mut many = moment();
    many.cpus = (0..512).map(|id| cpu(id, id % 7 == 0, vec![])).collect();
    let mut screen = screen();
    screen.take(Arc::new(many), vec![]);
    for size in [(1, 1), (40, 10), (80, 24), (200, 8), (40, 200), (480, 135)] {
        for look in [RICH, PLAIN] {
            drawn(&screen, look, size);
            screen.mode = Cover::Help;
            drawn(&screen, look, size);
            screen.mode = Cover::Watching;
        }
    }
    assert!(drawn(&Screen::default(), PLAIN, (80, 24)).0.starts_with("looking"));
}

#[test]
fn what_changes_the_machine_is_asked_again_and_the_rest_is_not() {
    let mut screen = screen();
    assert_eq!(screen.key(KeyPress::Char('a')), None);
    let Cover::Asking(TopOrder::Apply, question) = &screen.mode else {
        panic!("{:?}", screen.mode)
    };
    assert!(question.contains("CPU 3") && question.contains("30 s"), "{question}");
    assert!(drawn(&screen, PLAIN, (80, 24)).0.contains("y: do it"));
    assert_eq!(screen.key(KeyPress::Char('n')), None);
    assert_eq!(screen.mode, Cover::Watching);
    screen.key(KeyPress::Char('r'));
    assert_eq!(screen.key(KeyPress::Char('y')), Some(TopOrder::Revert));
    // One at a time.
    assert_eq!(screen.key(KeyPress::Char('c')), None);
    assert!(screen.said.as_ref().unwrap().1.starts_with("not yet"));
    screen.done(Ok(Deed {
        asked: "revert".into(),
        done: true,
        said: "put back\nall of it".into(),
    }));
    // What is done stands there once nothing waits to be confirmed.
    let mut calm = moment();
    calm.shield.as_mut().unwrap().confirm = None;
    screen.take(Arc::new(calm), vec![]);
    assert!(drawn(&screen, PLAIN, (80, 24)).0.contains("\nput back\n"));
    assert_eq!(screen.key(KeyPress::Char('c')), Some(TopOrder::Confirm));
    screen.done(Err("refused".into()));
    assert_eq!(screen.said, Some((false, "refused".into())));
    // It is silent: being heard again is no surprise.
    let unmute = asked(SoundWish::Mute { on: false });
    assert_eq!(screen.key(KeyPress::Char('m')), Some(unmute));
    screen.done(Err(String::new()));
    let bypass = asked(SoundWish::Bypass { on: true });
    assert_eq!(screen.key(KeyPress::Char('b')), Some(bypass));
}

#[test]
fn without_a_shield_there_is_nothing_to_confirm_and_without_an_engine_nothing_to_silence() {
    let mut screen = screen();
    let mut none = moment();
    none.shield.as_mut().unwrap().state = ShieldStanding::None;
    none.sounds.clear();
    screen.take(Arc::new(none), vec![]);
    for key in ['c', 'l', 'm', 'b', 's', 'w', '+', '-'] {
        assert_eq!(screen.key(KeyPress::Char(key)), None);
        assert_eq!((screen.mode.clone(), screen.doing.clone()), (Cover::Watching, None));
        assert!(!screen.said.take().unwrap().0, "{key}");
    }
    screen.key(KeyPress::Right);
    screen.key(KeyPress::Left);
    screen.key(KeyPress::Char('?'));
    assert!(drawn(&screen, PLAIN, (80, 24)).0.contains("put the machine back"));
    screen.key(KeyPress::Escape);
    assert!(!screen.quits);
    screen.key(KeyPress::Interrupt);
    assert!(screen.quits);
}

#[test]
fn what_the_screen_asks_for_is_taken_though_it_shows_an_apply_at_work() {
    let mut screen = screen();
    let mut half = moment();
    let shield = half.shield.as_mut().unwrap();
    (shield.state, shield.confirm) = (ShieldStanding::Leftover, Some(30));
    screen.take(Arc::new(half), vec![]);
    assert!(drawn(&screen, PLAIN, (80, 24)).0.contains("unless confirmed: press c"));
    assert_eq!(screen.key(KeyPress::Char('c')), Some(TopOrder::Confirm));
}

fn knobs() -> Knobs {
    let knob = |name: &str, unit: &str, low, high, value| Knob {
        name: name.into(),
        unit: unit.into(),
        low,
        high,
        value,
        default: Some(0.0),
    };
    Knobs {
        strip: "clean".into(),
        params: vec![
            knob("gate.threshold", "decibel", -90.0, 0.0, -62.0),
            knob("tone.bypass", "switch", 0.0, 1.0, 1.0),
            knob("out.gain", "decibel", -60.0, 20.0, -3.0),
        ],
    }
}

#[test]
fn the_strip_is_turned_by_keys_and_keeps_its_ranges() {
    let mut screen = screen();
    let wanted = TopOrder::Knobs { engine: "play.sock".into() };
    assert_eq!(screen.key(KeyPress::Char('s')), Some(wanted));
    screen.knobs("play.sock".into(), Ok(knobs()));
    let (text, _) = drawn(&screen, PLAIN, (80, 24));
    assert!(text.contains("out.gain") && text.contains("-3 dB"), "{text}");
    let set = |param: &str, value| Some(asked(SoundWish::Set { param: param.into(), value }));
    assert_eq!(screen.key(KeyPress::Left), set("gate.threshold", -62.5));
    // One after the other, without waiting.
    assert_eq!(screen.key(KeyPress::Left), set("gate.threshold", -63.0));
    screen.key(KeyPress::Down);
    assert_eq!(screen.key(KeyPress::Right), set("tone.bypass", 0.0));
    assert_eq!(screen.key(KeyPress::Down), None);
    screen.key(KeyPress::Down);
    assert_eq!(screen.key(KeyPress::Char('d')), set("out.gain", 0.0));
    for _ in 0..100 {
        screen.key(KeyPress::Char('>'));
    }
    assert_eq!(screen.key(KeyPress::Right), set("out.gain", 20.0));
    assert_eq!(screen.key(KeyPress::Escape), None);
    assert_eq!(screen.mode, Cover::Watching);
    assert!(!screen.quits);
    let louder = TopOrder::Gain { engine: "play.sock".into(), steps: 1 };
    screen.done(Err(String::new()));
    assert_eq!(screen.key(KeyPress::Char('+')), Some(louder));
}

#[test]
fn a_file_is_typed_and_swapped_in() {
    let mut screen = screen();
    screen.key(KeyPress::Char('w'));
    for letter in "/a/lead q.naam".chars() {
        assert_eq!(screen.key(KeyPress::Char(letter)), None);
    }
    assert!(drawn(&screen, PLAIN, (80, 24)).0.contains("/a/lead q.naam_"));
    screen.key(KeyPress::Backspace);
    screen.key(KeyPress::Backspace);
    screen.key(KeyPress::Char('m'));
    let swap = TopOrder::Swap { engine: "play.sock".into(), file: "/a/lead q.nam".into() };
    assert_eq!(screen.key(KeyPress::Enter), Some(swap));
    screen.done(Err("no".into()));
    screen.key(KeyPress::Char('w'));
    assert_eq!(screen.key(KeyPress::Escape), None);
    assert_eq!((screen.mode.clone(), screen.quits), (Cover::Watching, false));
}

#[test]
fn late_moments_a_histogram_and_a_tuner_are_shown() {
    let mut screen = screen();
    let mut now = moment();
    now.sounds[0].status.load.histogram = vec![0; 101];
    now.sounds[0].status.load.histogram[10] = 1_000_000;
    now.sounds[0].status.load.histogram[100] = 1;
    let read = |name: &str, value| SoundReading {
        name: format!("tuner.{name}"),
        unit: String::new(),
        value: Some(value),
    };
    now.sounds[0].readings = vec![read("pitch", 82.0), read("note", 40.0), read("deviation", -8.0)];
    let late = |n: u32| LiveEvent {
        at: format!("2026-11-24T12:34:{n:02}.000Z"),
        kind: LiveEventKind::Late,
        said: format!("{n} periods of clean came late; meanwhile burst ran 2 ms"),
    };
    screen.take(Arc::new(now), (0..20).map(late).collect());
    let (text, _) = drawn(&screen, PLAIN, (160, 40));
    assert!(text.contains("Late moments") && text.contains("19 periods"), "{text}");
    assert!(text.contains("E2") && text.contains("-8 cents"), "{text}");
    let line = text.lines().find(|line| line.contains("load 0%")).unwrap();
    assert!(line.contains('#') && line.trim_end().ends_with("late :"), "{line}");
    screen.key(KeyPress::Char('t'));
    let (text, _) = drawn(&screen, PLAIN, (80, 24));
    assert!(text.contains("12:34:19  19 periods") && text.contains("12:34:10"), "{text}");
    assert!(!text.contains("12:34:09"), "more than ten: {text}");
}
