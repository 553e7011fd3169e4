//! A real server on loopback, asked over real sockets, byte by byte.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_linux::Root;
use quiet_live::{Hands, LiveOptions, Stream};
use quiet_store::Store;
use quiet_types::{
    Machine, Plan, Run,
    live::Deed,
    plan::{STATUS_SCHEMA, Status},
};
use quiet_web::{DoorRules, Doors, HttpLimits, Keys, openapi};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Counts what is done; the machine stays as it is.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Counting {
    fn done(&self, asked: &str) -> Result<Deed, String> {
        self.0.fetch_add(1, SeqCst);
        Ok(Deed { asked: asked.into(), done: true, said: format!("{asked} <b>done</b>") })
    }
}

impl Hands for Counting {
    fn what(&self) -> String {
        "<i>CPU 1</i>".into()
    }
    fn plan(&self) -> Result<Plan, String> {
        Err("no plan for <u>this</u>".into())
    }
    fn check(&self) -> Result<quiet_types::check::Checked, String> {
        Err("no <u>audit</u>".into())
    }
    fn apply(&self, confirm: Option<u64>) -> Result<Deed, String> {
        self.done(&format!("apply {confirm:?}"))
    }
    fn confirm(&self) -> Result<Deed, String> {
        self.done("confirm")
    }
    fn revert(&self) -> Result<Deed, String> {
        self.done("revert")
    }
    fn lend(&self, seconds: u64) -> Result<Deed, String> {
        self.done(&format!("lend {seconds}"))
    }
    fn take_back(&self) -> Result<Deed, String> {
        self.done("take back")
    }
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const SESSION: &str = "11111111111111111111111111111111";
const CSRF: &str = "22222222222222222222222222222222";

struct Served {
    at: SocketAddr,
    hands: Arc<Counting>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
    _store: tempfile::TempDir,
    _stream: Stream,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.worker.take().unwrap().join().unwrap();
    }
}

fn serve_with(limits: HttpLimits, closed: bool) -> Served {
    serve_beside(limits, closed, None)
}

/// With a directory of control sockets.
fn serve_beside(limits: HttpLimits, closed: bool, engines: Option<PathBuf>) -> Served {
    let status: Status = serde_json::from_str(&format!(
        r#"{{"schema":"{STATUS_SCHEMA}","state":"none","shield":null,"since":null,"drift":[],"residents":[],"holder":null,"refused":[]}}"#
    ))
    .unwrap();
    let reader = Box::new(move || Ok(status.clone()));
    let options = LiveOptions { engines: engines.clone(), ..LiveOptions::at(10.0) };
    let stream = Stream::start(Root::system().unwrap(), options, reader).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let hands = Arc::new(Counting::default());
    let engines_are_there = engines.is_some();
    let store = tempfile::tempdir().unwrap();
    for (id, label) in [("20261124T100000Z-a", "<img src=y>"), ("20261124T110000Z-b", "\"><s>")] {
        let run = Run { id: id.into(), label: label.into(), ..quiet_judge::example::run() };
        Store::at(store.path()).save_run(&run).unwrap();
    }
    let doors = Doors {
        watch: stream.watch(),
        hands: hands.clone(),
        sounds: engines.as_ref().map(|dir| dir.join("sounds")),
        engines,
        store: Store::at(store.path()),
        jobs: quiet_live::Jobs::new(program()),
        program: program(),
        machine: match engines_are_there {
            false => Box::new(|| Err("not <s>here</s>".into())),
            true => Box::new(|| Ok(machine_with_a_sly_card())),
        },
        host: "<host>".into(),
    };
    let keys = Keys { token: TOKEN.into(), session: SESSION.into(), csrf: CSRF.into() };
    let mut rules = DoorRules::new(at, &[], keys);
    rules.closed = closed;
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    let worker = std::thread::spawn(move || {
        quiet_web::run(listener, (doors, rules), limits, &ended).unwrap();
    });
    Served { at, hands, stop, worker: Some(worker), _store: store, _stream: stream }
}

/// Plays the part of the program: a measurement goes on until it is told to end, `doctor` fails, `reach` prints no JSON, and the others
/// print what they were given.
fn program() -> quiet_live::Program {
    Arc::new(|call| {
        let script = match call.words[0].as_str() {
            "measure" => {
                "trap 'echo kept >&2; exit 0' TERM; echo '<b>pair</b> 1' >&2; while :; do sleep 0.05; done"
            }
            "doctor" => "echo 'quietcores: no <u>doctor</u>' >&2; exit 2",
            "stress" => "echo no JSON",
            "export" => "echo \"lost: a thing\" >&2; printf '%s,' \"$@\"",
            _ => {
                "printf '{\"given\":\"'; printf '%s,' \"$@\"; printf '\",\"input\":\"'; cat; printf '\"}'; exit 1"
            }
        };
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, "sh"]).args(&call.words);
        command
    })
}

/// A machine from the fixtures, with a card whose maker wishes no good.
fn machine_with_a_sly_card() -> Machine {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/machines/ryzen1700");
    let mut machine = quiet_linux::snapshot(
        &Root::at(&root).unwrap(),
        quiet_linux::Options { command_lines: quiet_linux::CommandLines::None },
    )
    .unwrap();
    machine.sound_cards[0].name = "<img src=card>".into();
    machine
}

fn serve() -> Served {
    serve_with(HttpLimits::default(), false)
}

/// Long, for a busy host; nothing waits so long where all is well.
const LONG: Duration = Duration::from_secs(240);

impl Served {
    fn open(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Sends a request of these lines and gives status and whole answer.
    fn raw(&self, request: &str) -> (u16, String) {
        let mut stream = self.open();
        stream.write_all(request.as_bytes()).unwrap();
        answer(&mut stream)
    }

    /// Asks again while the server has nothing to show yet: it waits for a look at the machine, and a busy host takes longer for one.
    fn ask(&self, line: &str, headers: &[&str], body: &str) -> (u16, String) {
        let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{length}{more}\r\n{body}",
            self.at
        );
        let until = Instant::now() + LONG;
        loop {
            let (status, said) = self.raw(&request);
            let is_early = status == 503 && said.contains("the machine was not looked at yet");
            if !is_early || Instant::now() >= until {
                return (status, said);
            }
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), &[], "")
    }

    fn done(&self) -> usize {
        self.hands.0.load(SeqCst)
    }
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    // Whoever is turned away while it still sends may see the connection reset.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, text)
}

const JSON: &str = "Content-Type: application/json";

#[test]
fn on_loopback_everybody_may_look_and_nobody_without_the_token_may_act() {
    let served = serve();
    let (status, page) = served.get("/");
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("No shield is up") && !page.contains(CSRF), "{page}");
    assert!(page.contains("default-src 'none'") && page.contains("nosniff"), "{page}");
    let own = format!("Origin: http://{}", served.at);
    let cookie = format!("Cookie: quietcores={SESSION}");
    let csrf = format!("x-quietcores-csrf: {CSRF}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let port = served.at.port();
    let neighbour = format!("Origin: http://127.0.0.1:{}", port ^ 1);
    let post = |headers: &[&str]| served.ask("POST /api/v1/apply", headers, r#"{"confirm":9}"#).0;
    for (headers, status) in [
        (&[JSON][..], 401),
        (&[JSON, "Authorization: Bearer nonsense"], 401),
        (&[JSON, &cookie, &csrf], 403),
        (&[JSON, &cookie, &csrf, "Origin: http://evil.example"], 403),
        (&[JSON, &cookie, &csrf, "Origin: null"], 403),
        (&[JSON, &cookie, &csrf, &neighbour], 403),
        (&[JSON, &cookie, &own], 403),
        (&[JSON, &cookie, &own, "x-quietcores-csrf: 222"], 403),
        (&[&cookie, &own, &csrf], 415),
        (&["Content-Type: text/plain", &cookie, &own, &csrf], 415),
        (&["Content-Type: application/x-www-form-urlencoded", &bearer], 415),
        (&[JSON, &bearer, "Origin: http://evil.example"], 403),
        (&[JSON, "Cookie: quietcores=", &own, &csrf], 401),
    ] {
        assert_eq!(post(headers), status, "{headers:?}");
    }
    assert_eq!(served.done(), 0, "something was done");
    assert_eq!(post(&[JSON, &cookie, &own, &csrf]), 200);
    assert_eq!(post(&[JSON, &bearer]), 200);
    assert_eq!(served.done(), 2);
    for body in
        ["{", r#"{"confirm":0}"#, r#"{"confirm":99999}"#, r#"{"more":1}"#, r#"{"confirm":-1}"#]
    {
        assert_eq!(served.ask("POST /api/v1/apply", &[JSON, &bearer], body).0, 400, "{body}");
    }
    assert_eq!(served.done(), 2);
    assert_eq!(served.ask("GET /api/v1/apply", &[&bearer], "").0, 405);
    assert_eq!(served.ask("PUT /api/v1/apply", &[JSON, &bearer], "{}").0, 405);
}

#[test]
fn a_name_that_is_not_the_servers_is_not_answered() {
    let served = serve();
    let port = served.at.port();
    for host in [
        "evil.example",
        "evil.example:80",
        &format!("evil.example:{port}"),
        "127.0.0.1",
        "",
        "127.0.0.1:1",
    ] {
        let (status, _) = served.raw(&format!(
            "GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ));
        assert!([400, 421].contains(&status), "{host}: {status}");
    }
    // Two names are none; one in the address does not help.
    let (status, _) = served.raw(&format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    ));
    assert!([400, 421].contains(&status), "{status}");
    let local = format!("GET / HTTP/1.1\r\nHost: LocalHost:{port}\r\nConnection: close\r\n\r\n");
    assert_eq!(served.raw(&local).0, 200);
}

#[test]
fn the_address_with_the_token_lets_a_browser_in_and_loses_the_token() {
    let served = serve();
    let (status, text) = served.get(&format!("/shield?token={TOKEN}"));
    assert_eq!(status, 303, "{text}");
    let lower = text.to_lowercase();
    assert!(lower.contains("location: /shield\r\n"), "{text}");
    assert!(
        text.contains(&format!("quietcores={SESSION}; Path=/; HttpOnly; SameSite=Strict")),
        "{text}"
    );
    assert!(!text.contains(TOKEN));
    // No way to another server.
    let (status, text) = served.get(&format!("//evil.example/?token={TOKEN}"));
    assert!(status != 303 || text.to_lowercase().contains("location: /\r\n"), "{text}");
    let (_, page) = served.ask("GET /", &[&format!("Cookie: other=1; quietcores={SESSION}")], "");
    assert!(page.contains(CSRF) && page.contains("data-post=\"apply\""), "{page}");
}

#[test]
fn guesses_are_slowed_and_the_right_token_still_lets_in() {
    let served = serve();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guess = |n: u32| {
            let header = format!("Authorization: Bearer {n:032x}");
            let served = &served;
            scope.spawn(move || served.ask("GET /api/v1/live", &[&header], "").0)
        };
        let all: Vec<_> = (0..30).map(guess).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(served.ask("GET /api/v1/live", &[&bearer], "").0, 200);
}

#[test]
fn beyond_loopback_nothing_is_answered_without_the_token() {
    let served = serve_with(HttpLimits::default(), true);
    for path in [
        "/",
        "/live.js",
        "/sound",
        "/api/v1/sound/play.sock",
        "/page.css",
        "/api/v1/live",
        "/api/v1/stream",
        "/api/v1/openapi.json",
        "/nowhere",
    ] {
        assert_eq!(served.get(path).0, 401, "{path}");
        let cookie = format!("Cookie: quietcores={SESSION}");
        let (status, _) = match path {
            "/api/v1/stream" => continue,
            path => served.ask(&format!("GET {path}"), &[&cookie], ""),
        };
        assert!([200, 404, 409].contains(&status), "{path}: {status}");
    }
}

#[test]
fn who_is_slow_or_says_nothing_makes_room_for_who_asks() {
    let limits = HttpLimits { connections: 16, head: Duration::from_secs(2) };
    let served = serve_with(limits, false);
    // Far more than are held, each with half a request.
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..600 {
        let mut stream = served.open();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
        half.push(stream);
        if half.len().is_multiple_of(100) {
            assert_eq!(served.get("/icon.svg").0, 200);
        }
    }
    assert_eq!(served.get("/icon.svg").0, 200);
    // All of them are ended by the server: some because of others, the rest by time.
    for mut stream in half {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock));
    }
    // A byte now and then does not keep one.
    let mut slow = served.open();
    slow.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let until = Instant::now() + LONG;
    let mut byte = [0];
    let ended = loop {
        assert!(Instant::now() < until, "a slow head is held for ever");
        if slow.write_all(b"a").is_err() {
            break true;
        }
        match slow.read(&mut byte) {
            Ok(0) => break true,
            Ok(_) => continue,
            Err(e)
                if [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut]
                    .contains(&e.kind()) =>
            {
                continue;
            }
            Err(_) => break true,
        }
    };
    assert!(ended);
}

#[test]
fn a_body_that_is_large_or_slow_is_not_taken() {
    let served = serve();
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let head = |more: &str| {
        format!(
            "POST /api/v1/apply HTTP/1.1\r\nHost: {}\r\n{JSON}\r\n{bearer}\r\n{more}\r\n\r\n",
            served.at
        )
    };
    // A gigabyte is told, and not a byte of it is waited for.
    assert_eq!(served.raw(&head("Content-Length: 1073741824")).0, 413);
    // One that does not say how much comes.
    let mut stream = served.open();
    stream.write_all(head("Transfer-Encoding: chunked").as_bytes()).unwrap();
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    let mut sent = 0usize;
    while sent < 1 << 30 && stream.write_all(chunk.as_bytes()).is_ok() {
        sent += 4096;
    }
    assert!(sent < 64 << 20, "{sent} bytes were taken");
    // One that never comes, and a head without an end.
    assert_eq!(served.raw(&head("Content-Length: 5")).0, 408);
    let (status, _) = served.raw(&format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n",
        served.at,
        "y".repeat(1 << 20)
    ));
    assert!([0, 400, 431].contains(&status), "{status}");
    assert_eq!(served.done(), 0);
    assert_eq!(served.get("/icon.svg").0, 200);
}

#[test]
fn no_path_leads_to_a_file() {
    let served = serve();
    for path in [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/runs/..%2f..%2f..%2fetc%2fpasswd",
        "/runs/%2fetc%2fpasswd",
        "/runs/.",
        "/runs/....",
        "/runs/a%00b",
        "/api/v1/runs/..%2f..%2fetc%2fpasswd",
        "/api/v1/runs/%2e%2e",
        "/assets/page.css",
        "/src/lib.rs",
        "/.git/config",
        "/page.css/../../Cargo.toml",
        "/compare?a=/etc/passwd&b=../../x",
        "/api/v1/compare?a=%2fetc%2fpasswd&b=x",
    ] {
        let (status, text) = served.get(path);
        assert!((400..500).contains(&status), "{path}: {status}");
        assert!(!text.contains("root:"), "{path}");
    }
}

#[test]
fn names_that_are_markup_are_text_on_every_page() {
    /// Ends the thread that spins, also where the test fails: its scope would wait for it for ever.
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(false, SeqCst);
        }
    }
    let served = serve();
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _ended = Ended(&busy);
        let spin = || {
            while busy.load(SeqCst) {
                std::hint::spin_loop()
            }
        };
        // As long as the kernel lets a name be.
        std::thread::Builder::new()
            .name("<img src=x>\"'".into())
            .spawn_scoped(scope, spin)
            .unwrap();
        let cookie = format!("Cookie: quietcores={SESSION}");
        let until = Instant::now() + LONG;
        loop {
            let (_, page) = served.ask("GET /", &[&cookie], "");
            assert!(!page.contains("<img"), "{page}");
            assert!(!page.contains("<i>CPU") && page.contains("&lt;i&gt;CPU 1"), "{page}");
            assert!(page.contains("&lt;host&gt;"));
            if page.contains("&lt;img src=x&gt;&quot;'") {
                break;
            }
            assert!(Instant::now() < until, "nobody named it: {page}");
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let (_, page) = served.get("/shield");
    assert!(page.contains("no plan for &lt;u&gt;this&lt;/u&gt;"), "{page}");
    let (status, page) = served.get("/machine");
    assert!(status == 503 && page.contains("&lt;s&gt;here"), "{page}");
}

#[test]
fn what_is_kept_is_listed_compared_and_shown_apart() {
    let served = serve();
    let (_, page) = served.get("/runs");
    assert!(
        page.contains("&lt;img src=y&gt;") && !page.contains("<img") && !page.contains("<s>"),
        "{page}"
    );
    let (status, page) = served.get("/compare?a=20261124T100000Z-a&b=20261124T110000Z-b");
    assert!(status == 200 && page.contains("B compared with A"), "{page}");
    let (status, page) = served.get("/runs/20261124T100000Z-a");
    let frame = "src=\"/runs/20261124T100000Z-a/report\" sandbox=\"allow-scripts\"";
    assert!(status == 200 && page.contains(frame), "{page}");
    let (status, report) = served.get("/runs/20261124T100000Z-a/report");
    let (head, report) = report.split_once("\r\n\r\n").unwrap();
    assert_eq!(status, 200);
    // It runs its own scripts, reaches nothing, and stands in this server's pages alone.
    let head = head.to_lowercase();
    for word in ["sandbox allow-scripts;", "default-src 'none'", "frame-ancestors 'self'"] {
        assert!(head.contains(word), "{head}");
    }
    assert!(head.contains("x-frame-options: sameorigin") && !report.contains("<img src=y"));
    assert_eq!(served.get("/runs/none/report").0, 404);
}

/// Plays the part of an engine whose strip was named by somebody who wishes no good; keeps what it was asked.
fn engine_of_markup(dir: &Path) -> Arc<Mutex<Vec<serde_json::Value>>> {
    let listener = UnixListener::bind(dir.join("play.sock")).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = asked.clone();
    let name = "<img src=x onerror=alert(1)>\u{1b}[2J";
    let knob = format!("{name}.\"><script>alert(2)</script>");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (name, knob, heard) = (name.to_owned(), knob.clone(), heard.clone());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut stream = stream;
                while let Some(Ok(line)) = lines.next() {
                    let request: serde_json::Value = serde_json::from_str(&line).unwrap();
                    let answer = match request["do"].as_str().unwrap() {
                        "stats" => serde_json::json!({
                            "strip": name, "rate": 48000, "period": 64, "buffer": 128, "mode": "sleep", "cpus": "1",
                            "real_time": true, "shielded": true, "blocks": 9, "xruns": 0, "missed": 0,
                            "dropped_events": 0, "broken": 0, "gone": 0, "between": 1, "waiting": 0, "ratio": null,
                            "load": {"mean": 1.0, "p50": 1, "p99": 2, "worst": 5, "worst_at": 1, "histogram": [0, 9]},
                            "levels": [{"input": -3.0, "output": -6.0}],
                            "readings": [{"name": format!("{name}.deviation"), "unit": "cent", "value": 1.0},
                                {"name": format!("{name}.pitch"), "unit": "hertz", "value": 82.0},
                                {"name": format!("{name}.note"), "unit": "plain", "value": 40.0}]
                        }),
                        "params" => serde_json::json!({"strip": name, "params": [
                            {"name": knob, "unit": name, "low": 0.0, "high": 1.0, "value": 0.5, "default": 0.5}
                        ]}),
                        "presets" => serde_json::json!({"presets": [name]}),
                        "strip" => serde_json::json!({"error": "there is no such strip"}),
                        "strips" => serde_json::json!({"folder": "/nowhere", "strips": [name]}),
                        "swap" if line.contains("refuse-me") => {
                            serde_json::json!({"error": "<b>no</b> amp"})
                        }
                        "swap" => serde_json::json!({"strip": name, "share": 0.1}),
                        _ => serde_json::json!({"ok": true}),
                    };
                    heard.lock().unwrap().push(request);
                    if writeln!(stream, "{answer}").is_err() {
                        return;
                    }
                }
            });
        }
    });
    asked
}

#[test]
fn names_of_strips_knobs_presets_and_files_are_text() {
    let dir = tempfile::tempdir().unwrap();
    let asked = engine_of_markup(dir.path());
    let served = serve_beside(HttpLimits::default(), false, Some(dir.path().to_owned()));
    let cookie = format!("Cookie: quietcores={SESSION}");
    for path in ["/", "/sound"] {
        // An engine that does not answer in time is in the next look, which is half a minute later where looks are dear.
        let until = Instant::now() + 2 * LONG;
        let page = loop {
            let (status, page) = served.ask(&format!("GET {path}"), &[&cookie], "");
            assert_eq!(status, 200, "{page}");
            if page.contains("&lt;img src=x onerror=alert(1)&gt;") {
                break page;
            }
            assert!(Instant::now() < until, "{path}: {page}");
            std::thread::sleep(Duration::from_millis(100));
        };
        for word in ["<img", "<script>alert", "\u{1b}"] {
            assert!(!page.contains(word), "{path} has {word}: {page}");
        }
    }
    let (_, page) = served.ask("GET /sound", &[&cookie], "");
    assert!(
        page.contains("E2") && page.contains("type=\"range\"") && page.contains("<rect"),
        "{page}"
    );
    let (status, page) = served.ask("GET /machine", &[&cookie], "");
    assert!(
        status == 200 && page.contains("&lt;img src=card&gt;") && !page.contains("<img"),
        "{page}"
    );
    // Without the token one sees, and turns nothing.
    let (_, page) = served.get("/sound");
    assert!(page.contains("disabled") && !page.contains("type=\"file\""), "{page}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let octets = "Content-Type: application/octet-stream";
    let drop = |name: &str, headers: &[&str], body: &str| {
        served.ask(&format!("POST /api/v1/drop?engine=play.sock&name={name}"), headers, body)
    };
    let swaps = || {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|one| one["do"] == "swap").cloned().collect::<Vec<_>>()
    };
    assert_eq!(drop("a.nam", &[octets], "{}").0, 401);
    assert_eq!(drop("a.nam", &[octets, &cookie], "{}").0, 403);
    assert_eq!(drop("a.exe", &[octets, &bearer], "{}").0, 409);
    assert_eq!(drop("..%2f..%2fa.toml", &[octets, &bearer], "{}").0, 409);
    assert!(swaps().is_empty());
    let (status, text) = drop("..%2f..%2f%3cimg%3e.nam", &[octets, &bearer], "{\"x\":1}");
    assert_eq!(status, 200, "{text}");
    let swapped = swaps();
    let path = Path::new(swapped[0]["amp"].as_str().unwrap());
    assert_eq!(path.parent(), Some(dir.path().join("sounds").as_path()));
    assert_eq!(std::fs::read(path).unwrap(), b"{\"x\":1}");
    // What the engine does not take is not kept.
    let (status, text) = drop("refuse-me.nam", &[octets, &bearer], "{}");
    assert!(status == 409 && text.contains("amp"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path().join("sounds")).unwrap().count(), 1);
    // Larger than is taken: not a byte of it is waited for.
    let head = format!(
        "POST /api/v1/drop?engine=play.sock&name=a.wav HTTP/1.1\r\nHost: {}\r\n{octets}\r\n{bearer}\r\nContent-Length: 1073741824\r\n\r\n",
        served.at
    );
    assert_eq!(served.raw(&head).0, 413);
    // A strip that the engine does not name is none, whatever it is called.
    let ask = |body: &str| served.ask("POST /api/v1/sound", &[JSON, &bearer], body);
    assert_eq!(ask(r#"{"engine":"play.sock","do":"strip","name":"../../etc/passwd"}"#).0, 409);
    assert_eq!(ask(r#"{"engine":"play.sock","do":"quit"}"#).0, 400);
    assert_eq!(ask(r#"{"engine":"play.sock","do":"swap","amp":"/etc/passwd"}"#).0, 400);
    assert_eq!(ask(r#"{"engine":"play.sock","do":"bypass","on":true,"more":1}"#).0, 400);
    assert_eq!(ask(r#"{"engine":"../serve.keys","do":"params"}"#).0, 409);
    assert_eq!(ask(r#"{"engine":"play.sock","do":"bypass","on":true}"#).0, 200);
    assert_eq!(served.get("/api/v1/sound/play.sock").0, 200);
}

#[test]
fn pages_need_nothing_that_their_policy_forbids_and_are_small() {
    let served = serve();
    let cookie = format!("Cookie: quietcores={SESSION}");
    let mut sum = 0;
    for path in ["/", "/live.js", "/sound.js", "/jobs.js", "/page.css", "/icon.svg"] {
        sum += served.ask(&format!("GET {path}"), &[&cookie], "").1.len();
    }
    assert!(sum < 150_000, "{sum} bytes at first load");
    for path in ["/", "/sound", "/shield", "/runs", "/tune", "/farm", "/nowhere"] {
        let (_, page) = served.ask(&format!("GET {path}"), &[&cookie], "");
        for word in
            [" style=", "<style", " onclick", "javascript:", "<script>", "http://", "https://"]
        {
            let body = page.split("\r\n\r\n").nth(1).unwrap();
            let shown = body.replace("http://www.w3.org", "");
            assert!(!shown.contains(word), "{path} has {word}");
        }
    }
}

#[test]
fn long_work_is_a_job_that_is_followed_and_ended() {
    let served = serve();
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let ask = |what: &str, body: &str| served.ask(what, &[JSON, &bearer], body);
    let measure = r#"{"verb":"measure wakeup","with":{"cpus":"0","for":"5s"}}"#;
    // Nobody without the token, and nothing that makes no sense.
    assert_eq!(served.ask("POST /api/v1/jobs", &[JSON], measure).0, 401);
    for wrong in [
        r#"{"verb":"measure wakeup","with":{"cpus":"0","output":"/etc/passwd"}}"#,
        r#"{"verb":"measure wakeup","with":{"stress":["/root"]}}"#,
        r#"{"verb":"measure wakeup","more":1}"#,
        r#"{"verb":"campaign"}"#,
        r#"{"verb":"apply"}"#,
        r#"{"verb":"sh"}"#,
    ] {
        let (status, said) = ask("POST /api/v1/jobs", wrong);
        assert!([400, 409].contains(&status), "{wrong}: {said}");
    }
    assert_eq!(served.get("/api/v1/jobs/1").0, 404);
    let (status, said) = ask("POST /api/v1/jobs", measure);
    assert!(status == 200 && said.contains("measure wakeup, cpus 0, for 5s"), "{said}");
    assert_eq!(ask("POST /api/v1/jobs", measure).0, 409);
    // Its events begin with how it stands and end with it.
    let mut events = served.open();
    let request = format!(
        "GET /api/v1/jobs/1/events HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        served.at
    );
    events.write_all(request.as_bytes()).unwrap();
    let is_told = || served.get("/api/v1/jobs/1").1.contains("pair");
    while !is_told() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let cookie = format!("Cookie: quietcores={SESSION}");
    let page = served.ask("GET /tune", &[&cookie], "").1;
    assert!(page.contains("&lt;b&gt;pair&lt;/b&gt; 1") && !page.contains("<b>pair"), "{page}");
    assert_eq!(ask("POST /api/v1/jobs/1/cancel", "{}").0, 200);
    let mut told = String::new();
    events.read_to_string(&mut told).unwrap();
    assert!(told.contains(r#""state":"running""#) && told.contains(r#""state":"ended""#), "{told}");
    assert_eq!(ask("POST /api/v1/jobs/1/cancel", "{}").0, 409);
    assert_eq!(ask("POST /api/v1/jobs/9/cancel", "{}").0, 409);
}

#[test]
fn a_verb_is_called_with_what_it_may_be_given_and_nothing_else() {
    let served = serve();
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let octets = "Content-Type: application/octet-stream";
    let act = |path: &str, body: &str| served.ask(&format!("POST {path}"), &[JSON, &bearer], body);
    let send =
        |path: &str, body: &str| served.ask(&format!("POST {path}"), &[octets, &bearer], body);
    // Looks need no token and change nothing; acts need it.
    let (status, said) = served.get("/api/v1/persist?cpus=2-3&trial=true&chain=ready:mpd");
    let given = r#""given":"persist,--dry-run,--json,--cpus=2-3,--trial,ready:mpd,""#;
    assert!(status == 200 && said.contains(given), "{said}");
    for path in ["persist", "unpersist", "setup", "import", "campaign", "farm/send", "approve"] {
        assert_eq!(served.ask(&format!("POST /api/v1/{path}"), &[JSON], "{}").0, 401, "{path}");
    }
    let (status, said) = act("/api/v1/persist", r#"{"cpus":"2-3","never-sleep":true}"#);
    assert!(
        status == 200 && said.contains("persist,--yes,--json,--cpus=2-3,--never-sleep,"),
        "{said}"
    );
    for (path, wrong) in [
        ("persist", r#"{"root":"x"}"#),
        ("persist", r#"{"cpus":"2/3"}"#),
        ("persist", r#"{"chain":"/etc/passwd"}"#),
        ("doctor/undo", r#"{"undo":"../x"}"#),
        ("prove", r#"{"html":"x"}"#),
    ] {
        assert_eq!(act(&format!("/api/v1/{path}"), wrong).0, 400, "{path} {wrong}");
    }
    assert_eq!(served.get("/api/v1/persist?store=x").0, 400);
    // What it says when it fails is the answer; what is no JSON is never called that.
    let (status, said) = act("/api/v1/doctor", "{}");
    assert!(status == 409 && said.contains("no <u>doctor</u>"), "{said}");
    assert_eq!(served.get("/api/v1/stress").0, 500);
    // A run is named by its id and found in the store.
    let (status, said) = served.get("/api/v1/export?run=20261124T100000Z-a&format=csv");
    assert!(status == 200 && said.contains("x-quietcores-said: lost: a thing"), "{said}");
    assert!(said.contains("export,--format=csv,/") && said.contains("attachment"), "{said}");
    for run in ["../20261124T100000Z-a", "/etc/passwd", "nobody"] {
        assert_eq!(served.get(&format!("/api/v1/export?run={run}")).0, 404, "{run}");
    }
    // A file is the body, bounded, and reaches the verb by its standard input.
    let (status, said) = send("/api/v1/import?format=oslat&label=a%20b", "a stranger's");
    assert!(
        status == 200 && said.contains("import,--json,--format=oslat,--label=a b,-,"),
        "{said}"
    );
    assert!(said.contains(r#""input":"a stranger's""#), "{said}");
    let head = format!(
        "POST /api/v1/campaign HTTP/1.1\r\nHost: {}\r\n{octets}\r\n{bearer}\r\nContent-Length: 1048577\r\n\r\n",
        served.at
    );
    assert_eq!(served.raw(&head).0, 413);
    // Long work by its own address is a job, and what it printed without an id is kept.
    let (status, said) = send("/api/v1/campaign?status=true", "[campaign]");
    assert!(status == 200 && said.contains(r#""what":"campaign, status true""#), "{said}");
    let over = || served.get("/api/v1/jobs/1").1;
    while over().contains(r#""state":"running""#) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(over().contains(r#""printed":true"#), "{}", over());
    let (status, said) = served.get("/api/v1/jobs/1/result");
    assert!(status == 200 && said.contains(r#""given":"campaign,--json,--status,-,""#), "{said}");
    assert!(said.contains(r#""input":"[campaign]""#), "{said}");
    assert_eq!(served.get("/api/v1/jobs/2/result").0, 404);
    let (status, said) = served.get("/api/v1/runs/20261124T100000Z-a/report");
    assert!(status == 200 && said.contains("sandbox allow-scripts;"), "{status}");
}

#[test]
fn what_needs_no_right_is_asked_like_any_verb() {
    let served = serve();
    let (status, said) = served.get("/api/v1/check");
    assert!(status == 409 && said.contains("no <u>audit</u>"), "{said}");
    let (status, said) =
        served.get("/api/v1/predict?runs=20261124T100000Z-a&frames=64,128&load=0.3");
    assert!(status == 200 && said.contains("\"frames\":128"), "{said}");
    for wrong in
        ["", "?runs=nobody", "?runs=20261124T100000Z-a&frames=0", "?runs=20261124T100000Z-a&load=1"]
    {
        let status = served.get(&format!("/api/v1/predict{wrong}")).0;
        assert!([400, 404].contains(&status), "{wrong}: {status}");
    }
}

#[test]
fn the_stream_gives_moments_and_ends_with_the_server() {
    let served = serve();
    let mut stream = served.open();
    let request = format!("GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\n\r\n", served.at);
    stream.write_all(request.as_bytes()).unwrap();
    let (mut got, mut buffer) = (String::new(), [0; 8192]);
    while got.matches("data: {\"schema\":\"quietcores.live/1\"").count() < 3 {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "it ended: {got}");
        got.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    assert!(got.contains("text/event-stream"));
    drop(served);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}

#[test]
fn more_than_enough_followers_are_turned_away_and_the_page_still_answers() {
    let served = serve();
    let follow = || {
        let mut stream = served.open();
        let request = format!("GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\n\r\n", served.at);
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, head)
    };
    let all: Vec<_> = (0..60).map(|_| follow()).collect();
    let refused = all.iter().filter(|(_, head)| head == b"HTTP/1.1 503").count();
    assert_eq!(refused, 12);
    assert_eq!(served.get("/").0, 200);
}

#[test]
fn the_committed_description_is_that_of_the_interface() {
    let now = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/openapi.json");
    if std::env::var_os("QUIETCORES_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "docs/schema/openapi.json: run again with QUIETCORES_BLESS=1 if the change is meant"
    );
    // What it describes is there.
    let served = serve();
    let described: serde_json::Value = serde_json::from_str(&now).unwrap();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|_| path != "/api/v1/stream") {
            let path = path.replace("{id}", "none");
            let (status, text) = served.ask(
                &format!("{} {path}", method.to_uppercase()),
                &[JSON, &format!("Authorization: Bearer {TOKEN}")],
                "",
            );
            let is_there = ![404, 405].contains(&status) || text.contains("no run of that name");
            assert!(is_there, "{method} {path}: {status}");
        }
    }
}
