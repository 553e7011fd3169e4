//! A farm by the program alone: consent, an outbox, copied folders, answers, a page.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, own_sockets, skip, until};
use quiet_types::{Run, farm::FarmAnswer};
use std::{
    fs,
    net::SocketAddrV4,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.args(words).env("COLUMNS", "200").stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn good(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    text(&output)
}

fn measure(store: &str) -> Run {
    let measured = run(&[
        "measure",
        "wakeup",
        "--policy",
        "other",
        "--priority",
        "0",
        "--interval",
        "1ms",
        "--for",
        "200ms",
        "--store",
        store,
        "--json",
    ]);
    assert!(measured.status.success(), "{}", text(&measured));
    serde_json::from_slice(&measured.stdout).unwrap()
}

fn ask(db: &str, words: &[&str]) -> FarmAnswer {
    let output = run(&[&["farm", "ask", "--json", "--db", db], words].concat());
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

#[test]
fn nothing_leaves_before_it_was_agreed_to_and_what_leaves_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = path(dir.path(), "a");
    let shown = good(&[
        "farm",
        "join",
        "tls://farm.example:4222",
        "--show",
        "--as",
        "box-1",
        "--store",
        &store,
    ]);
    for part in ["to tls://farm.example:4222", "the pseudonym box-1", "never: sound"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let refused = run(&["farm", "join", "--store", &store]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("`--yes` agrees"), "{}", text(&refused));
    assert!(!Path::new(&store).join("farm").exists());
    let refused = run(&["farm", "send", "--store", &store]);
    assert!(text(&refused).contains("in no farm"), "{}", text(&refused));
    let refused = run(&["farm", "join", "nats://farm.example:4222", "--yes", "--store", &store]);
    assert!(text(&refused).contains("unencrypted"), "{}", text(&refused));
    good(&["farm", "join", "--yes", "--as", "box-1", "--store", &store]);
    assert!(good(&["farm", "status", "--store", &store]).contains("in a farm as box-1"));
    assert!(good(&["farm", "leave", "--store", &store]).contains("left"));
    let refused = run(&["farm", "send", "--store", &store]);
    assert!(text(&refused).contains("in no farm"), "{}", text(&refused));
}

#[test]
fn copied_folders_make_the_sum_of_their_runs_however_often_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, db) =
        (path(dir.path(), "a"), path(dir.path(), "b"), path(dir.path(), "farm.sqlite"));
    let mut sum = measure(&a).readings();
    good(&["farm", "join", "--yes", "--all", "--as", "box-a", "--store", &a]);
    let state = path(dir.path(), "state");
    let send = |store: &str| good(&["farm", "send", "--store", store, "--state", &state]);
    assert!(send(&a).contains("wait to be collected"));
    // What is kept later comes by the store, and then once more by the outbox.
    for store in [&a, &b] {
        sum.merge(&measure(store).readings());
    }
    let first = good(&["farm", "collect", dir.path().to_str().unwrap(), "--db", &db]);
    assert!(first.starts_with("2 stores: "), "{first}");
    send(&a);
    good(&["farm", "collect", &a, &b, "--db", &db]);
    let answer = ask(&db, &["probe=wakeup"]);
    assert_eq!((answer.machines, answer.runs, answer.groups.len()), (2, 3, 1));
    let group = &answer.groups[0];
    assert_eq!((group.readings, group.max), (sum.count, sum.max));
    assert_eq!(group.p99, sum.percentile(0.99));
    let by = ask(&db, &["--by", "host", "host=box-*"]);
    assert_eq!((by.machines, by.runs), (1, 2));
    let shown = good(&["farm", "ask", "--db", &db, "--by", "kernel", "--trend"]);
    assert!(shown.starts_with("2 machines, 3 kept runs"), "{shown}");
    let metrics = good(&["farm", "metrics", "--db", &db]);
    assert!(metrics.contains(&format!("_count{{probe=\"wakeup\"}} {}", sum.count)), "{metrics}");
    let page = path(dir.path(), "farm.html");
    good(&["farm", "page", "--db", &db, "-o", &page]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("href=\"#m0r0\"") && page.contains("box-a"));
}

#[test]
fn many_senders_at_once_put_each_record_once_and_one_alone_follows() {
    let dir = tempfile::tempdir().unwrap();
    let (store, state) = (path(dir.path(), "a"), path(dir.path(), "state"));
    good(&["farm", "join", "--yes", "--all", "--as", "box-a", "--store", &store]);
    for _ in 0..3 {
        measure(&store);
    }
    let words = ["farm", "send", "--store", &store, "--state", &state];
    let senders: Vec<Running> =
        (0..6).map(|_| start(env!("CARGO_BIN_EXE_quietcores"), &words)).collect();
    for mut sender in senders {
        assert!(sender.0.wait().unwrap().success());
    }
    // The runs, and that there is no shield.
    let waiting = || fs::read_dir(Path::new(&store).join("farm").join("outbox")).unwrap().count();
    assert_eq!(waiting(), 4);

    let follow = [&words[..], &["--follow"]].concat();
    let first = start(env!("CARGO_BIN_EXE_quietcores"), &follow);
    let taken = Path::new(&store).join("farm/following");
    let held = || {
        let file = fs::File::open(&taken).ok()?;
        let free = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
        free.is_err().then_some(())
    };
    until("the first follows", held);
    let second = run(&follow);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second));
    assert!(text(&second).contains("end it first"), "{}", text(&second));
    // Beside it, one that sends once may.
    good(&words);
    drop(first);
    let third = start(env!("CARGO_BIN_EXE_quietcores"), &follow);
    until("the third follows after the first was killed", held);
    drop(third);
    assert_eq!(waiting(), 4);
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> Running {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

#[test]
fn a_collector_that_is_killed_goes_on_where_it_was() {
    let Some(program) = quiet_testing::tool("nats-server") else {
        return skip(Why::Program("nats-server", "nats-server"));
    };
    let dir = tempfile::tempdir().unwrap();
    let [socket] = own_sockets();
    let (address, port) = (socket.ip().to_string(), socket.port().to_string());
    let js = path(dir.path(), "js");
    let _server = start(program, &["-a", &address, "-p", &port, "-js", "-sd", &js]);
    let url = format!("nats://{socket}");
    let (a, db, state) =
        (path(dir.path(), "a"), path(dir.path(), "farm.sqlite"), path(dir.path(), "state"));
    let collector = ["farm", "serve", &url, "--make", "1", "--db", &db];
    let once = [&collector[..], &["--once"]].concat();
    until("the stream is made", || run(&once).status.success().then_some(()));
    good(&["farm", "join", &url, "--yes", "--store", &a]);
    let run_and_send = || {
        let run = measure(&a);
        good(&["farm", "send", "--store", &a, "--state", &state]);
        run.readings()
    };
    let mut sum = run_and_send();
    let mut first = start(env!("CARGO_BIN_EXE_quietcores"), &collector);
    until("the first run is collected", || (ask(&db, &["probe=wakeup"]).runs == 1).then_some(()));
    first.0.kill().unwrap();
    sum.merge(&run_and_send());
    sum.merge(&run_and_send());
    assert_eq!(ask(&db, &["probe=wakeup"]).runs, 1);
    let _second = start(env!("CARGO_BIN_EXE_quietcores"), &collector);
    until("the others are collected", || (ask(&db, &["probe=wakeup"]).runs == 3).then_some(()));
    // Another one beside it, from the beginning.
    let other = path(dir.path(), "other.sqlite");
    good(&["farm", "serve", &url, "--once", "--db", &other]);
    for db in [&db, &other] {
        let answer = ask(db, &["probe=wakeup"]);
        assert_eq!((answer.runs, answer.groups[0].readings), (3, sum.count));
        assert_eq!(answer.groups[0].max, sum.max);
    }
}

/// What a Prometheus answers to a question, in seconds.
fn prometheus(socket: SocketAddrV4, expression: &str) -> Option<f64> {
    use std::io::{Read, Write};
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    let query: String = expression
        .bytes()
        .map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let mut stream = std::net::TcpStream::connect(socket).ok()?;
    let head = format!("GET /api/v1/query?query={query} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut all = String::new();
    stream.read_to_string(&mut all).ok()?;
    let answer: serde_json::Value = serde_json::from_str(all.split_once("\r\n\r\n")?.1).ok()?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn a_real_prometheus_reads_both_forms_and_the_rules() {
    let tool = |name| quiet_testing::tool(name);
    let (Some(program), Some(promtool)) = (tool("prometheus"), tool("promtool")) else {
        return skip(Why::Program("prometheus", "prometheus"));
    };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/farm/alerts.yml");
    let checked = Command::new(promtool).args(["check", "rules"]).arg(rules).output().unwrap();
    assert!(checked.status.success() && text(&checked).contains("4 rules found"), "{checked:?}");

    let dir = tempfile::tempdir().unwrap();
    let (a, db) = (path(dir.path(), "a"), path(dir.path(), "farm.sqlite"));
    let run = measure(&a);
    good(&["farm", "collect", &a, "--db", &db]);
    let server = Server::start(&["farm", "metrics", "--listen", "127.0.0.1:0", "--db", &db]);
    let ours = run.readings();
    let seconds = |ns: quiet_types::Nanos| ns.0 as f64 / 1e9;
    let median = seconds(ours.percentile(0.5).unwrap());
    for native in [false, true] {
        let kept = path(dir.path(), if native { "native" } else { "classic" });
        let [socket] = own_sockets();
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: q\n  static_configs: [{{targets: ['{}']}}]\n",
            server.1
        );
        fs::write(format!("{kept}.yml"), config).unwrap();
        let words = [
            format!("--config.file={kept}.yml"),
            format!("--storage.tsdb.path={kept}"),
            format!("--web.listen-address={socket}"),
        ];
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        if native {
            words.push("--enable-feature=native-histograms");
        }
        let _scraper = start(&program, &words);
        let ask = |expression: &str| until(expression, || prometheus(socket, expression));
        let (count, quantile, off) = match native {
            false => {
                ("quietcores_latency_seconds_count", "quietcores_latency_seconds_bucket", 0.25)
            }
            true => {
                ("histogram_count(quietcores_latency_seconds)", "quietcores_latency_seconds", 0.04)
            }
        };
        assert_eq!(ask(count) as u64, ours.count, "{count}");
        let theirs = ask(&format!("histogram_quantile(0.5, {quantile})"));
        // As wide as a bucket of theirs, and half of one of ours.
        assert!(
            (theirs / median - 1.0).abs() <= off + 0.01,
            "{theirs} for {median}, native {native}"
        );
        let maximum = ask("quietcores_latency_max_seconds");
        assert!((maximum - seconds(ours.max.unwrap())).abs() < 1e-9, "{maximum}");
    }
}

/// A program that serves until this is dropped.
struct Server(Child, String);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(args: &[&str]) -> Server {
        use std::io::BufRead;
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let said = child.stderr.take().unwrap();
        std::io::BufReader::new(said).read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("http://").and_then(|at| at.strip_suffix("/metrics"));
        let at = at.unwrap_or_else(|| panic!("{line}")).to_owned();
        Server(child, at)
    }

    /// An answer, head and body, to a request with these headers.
    fn ask(&self, path: &str, host: &str, headers: &str) -> (String, Vec<u8>) {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&self.1).unwrap();
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let at = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        (String::from_utf8(all[..at].to_vec()).unwrap(), all[at + 4..].to_vec())
    }
}

#[test]
fn a_scraper_gets_text_or_messages_and_a_stranger_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (a, db) = (path(dir.path(), "a"), path(dir.path(), "farm.sqlite"));
    measure(&a);
    good(&["farm", "collect", &a, "--db", &db]);
    let server =
        Server::start(&["farm", "metrics", "--by", "host", "--listen", "127.0.0.1:0", "--db", &db]);
    let (head, body) = server.ask("/metrics", &server.1, "");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text"), "{head}");
    let body = String::from_utf8(body).unwrap();
    let printed = || {
        let printed = run(&["farm", "metrics", "--by", "host", "--db", &db]).stdout;
        String::from_utf8(printed).unwrap()
    };
    assert_eq!(body, printed());
    let accept = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                  encoding=delimited;q=0.6,text/plain;q=0.3\r\n";
    let (head, messages) = server.ask("/metrics", &server.1, accept);
    assert!(head.contains("application/vnd.google.protobuf"), "{head}");
    assert!(messages.windows(26).any(|part| part == b"quietcores_latency_seconds"));
    assert!(server.ask("/metrics", "evil.example:80", "").0.contains(" 421 "));
    assert!(server.ask("/", &server.1, "").0.contains(" 404 "));
    // What comes later is there at the next scrape.
    measure(&a);
    good(&["farm", "collect", &a, "--db", &db]);
    let now = String::from_utf8(server.ask("/metrics", &server.1, "").1).unwrap();
    assert_eq!(now, printed());
    assert!(now.lines().count() > 80);

    let file = path(dir.path(), "token");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    let server = Server::start(&[
        "farm",
        "metrics",
        "--listen",
        "127.0.0.1:0",
        "--db",
        &db,
        "--token-file",
        &file,
    ]);
    assert!(server.ask("/metrics", &server.1, "").0.contains(" 401 "));
    let wrong = "Authorization: Bearer 0123456789abcdeX\r\n";
    assert!(server.ask("/metrics", &server.1, wrong).0.contains(" 401 "));
    let right = "Authorization: Bearer 0123456789abcdef\r\n";
    assert!(server.ask("/metrics", &server.1, right).0.contains(" 200 "));
    let refused = run(&["farm", "metrics", "--listen", "0.0.0.0:0", "--db", &db]);
    assert!(text(&refused).contains("--token-file"), "{}", text(&refused));
}
