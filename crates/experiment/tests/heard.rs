//! Experiments without a terminal: what an observer hears, and what comes of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_engine::{AudioHost, SeatWish, Setup, Wait};
use quiet_experiment::{
    ErrorKind, Grid, Notice, Observer, Workplace, buffers, campaign_status, least_buffer,
    read_campaign,
};
use quiet_store::Store;
use quiet_types::{Frames, Nanos, SampleRate, campaign::CellStanding};
use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering},
};

/// Writes down what it hears; raises a flag at the first part, where there is one.
#[derive(Default)]
struct Ear<'a> {
    heard: RefCell<Vec<String>>,
    whole: RefCell<Vec<Nanos>>,
    at: RefCell<Vec<Nanos>>,
    stop: Option<&'a AtomicBool>,
}

impl Observer for Ear<'_> {
    fn begin(&self, whole: Nanos) {
        self.whole.borrow_mut().push(whole);
    }
    fn at(&self, done: Nanos) {
        self.at.borrow_mut().push(done);
    }
    fn doing(&self, what: &str) {
        self.heard.borrow_mut().push(what.to_owned());
        if let Some(stop) = self.stop {
            stop.store(true, Ordering::Relaxed);
        }
    }
    fn event(&self, event: Notice<'_>) {
        if let Notice::Buffer { period, buffer, plays } = event {
            self.heard.borrow_mut().push(format!("{period} {buffer} {plays:?}"));
        }
    }
    fn guard(&self) -> fn(&str) {
        |_| {}
    }
    fn end(&self) {
        self.heard.borrow_mut().push("end".into());
    }
}

fn setup() -> Setup {
    Setup {
        host: AudioHost::Null(None),
        rate: SampleRate(48_000),
        period: Frames(256),
        buffer: Frames(512),
        channels: 1,
        inputs: 1,
        outputs: 1,
        wish: SeatWish { mode: Some(Wait::Sleep), priority: 70, ..SeatWish::default() },
    }
}

fn grid() -> Grid {
    Grid {
        periods: vec![1024, 512],
        counts: vec![2],
        stress: vec!["none".into()],
        stress_cpus: None,
        modes: Vec::new(),
        shield: false,
        load: 0.01,
        length: Nanos::from_millis(50),
        rounds: 1,
        label: "heard".into(),
        state: "/nowhere/quietcores".into(),
    }
}

#[test]
fn a_grid_is_played_the_least_ring_first_and_every_cell_is_heard() {
    let (ear, stop) = (Ear::default(), AtomicBool::new(false));
    let played = buffers(&grid(), setup(), &stop, &ear).unwrap();
    assert_eq!(*ear.heard.borrow(), ["512 x 2, shared, none", "1024 x 2, shared, none", "end"]);
    assert_eq!(*ear.whole.borrow(), [Nanos::from_millis(100)]);
    let at = ear.at.borrow();
    assert!(at.windows(2).all(|two| two[0] <= two[1]), "{at:?}");
    assert_eq!(at.last(), Some(&Nanos::from_millis(100)));
    let sizes: Vec<_> = played.cells.iter().map(|cell| (cell.period, cell.trials.len())).collect();
    assert_eq!(sizes, [(512, 1), (1024, 1)]);
    assert_eq!((played.head.label.as_str(), played.head.interrupted), ("heard", false));
}

#[test]
fn what_makes_no_sense_is_refused_and_what_is_ended_early_says_so() {
    let stop = AtomicBool::new(false);
    let wrong = Grid { counts: vec![1], ..grid() };
    let error = buffers(&wrong, setup(), &stop, &Ear::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Asked);
    stop.store(true, Ordering::Relaxed);
    let error = buffers(&grid(), setup(), &stop, &Ear::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    stop.store(false, Ordering::Relaxed);
    let ear = Ear { stop: Some(&stop), ..Ear::default() };
    let played = buffers(&grid(), setup(), &stop, &ear).unwrap();
    assert!(played.head.interrupted && played.cells.len() == 1);
}

#[test]
fn the_least_buffer_is_the_first_that_plays() {
    let (ear, stop) = (Ear::default(), AtomicBool::new(false));
    let (period, buffer) = least_buffer(&setup(), &stop, &ear).unwrap();
    let heard = ear.heard.borrow();
    assert_eq!(heard.last().unwrap(), &format!("{period} {buffer} Ok(true)"));
    assert!(heard[..heard.len() - 1].iter().all(|tried| !tried.ends_with("Ok(true)")));
    stop.store(true, Ordering::Relaxed);
    let error = least_buffer(&setup(), &stop, &Ear::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}

#[test]
fn a_campaign_stands_as_its_store_says_and_a_file_without_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("two.toml");
    std::fs::write(
        &file,
        "[campaign]\nname = \"two\"\ncpus = \"0\"\nrounds = 2\nfor = \"1s\"\n[[probe]]\nkind = \"wakeup\"\n\
         interval = \"1ms\"\n[[setting]]\nname = \"here\"\n[[setting]]\nname = \"there\"\nkernel = \"0.0.*\"\n",
    )
    .unwrap();
    let (declared, at) = read_campaign(&file).unwrap();
    assert_eq!(at, dir.path());
    let store = Store::at(dir.path().join("store"));
    let place = Workplace { dir: &at, store: &store, state: dir.path() };
    let (stands, runs) = campaign_status(&declared, place).unwrap();
    assert_eq!((stands.left, stands.waiting, runs.len()), (2, 2, 0));
    assert!(stands.cells.iter().any(|cell| cell.state == CellStanding::Waiting));
    std::fs::write(&file, "[campaign\n").unwrap();
    let error = read_campaign(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Asked);
    assert!(error.to_string().contains("two.toml"), "{error}");
}
