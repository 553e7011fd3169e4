//! A stand-in for a player or a DSP in the guest: a process of this file's name, with threads of the names given, that
//! work for a moment every 10 ms. Once /tmp/NAME.more exists, a thread `late` is born in it.
use std::{env, fs, path::Path, thread, time::{Duration, Instant}};

fn work() {
    loop {
        let until = Instant::now() + Duration::from_micros(200);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn main() {
    let mut arguments = env::args();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    for thread in arguments {
        thread::Builder::new().name(thread).spawn(work).expect("a thread");
    }
    let more = format!("/tmp/{name}.more");
    while fs::metadata(&more).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    thread::Builder::new().name("late".into()).spawn(work).expect("a thread");
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}
