//! `play` as a whole: on the card that does not exist, on files, and through its control socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, cpus, is_root, machine_still, own_cpus, program, public_folder, skip};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

fn quietcores() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    // A long ring: what is tested is not this machine's latency.
    command.args(["play", "--host", "null", "--mode", "sleep", "--period", "256"]);
    command.args(["--buffer", "8192"]).stdin(Stdio::null());
    command
}

struct Playing {
    child: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Playing {
    fn start(more: &[&str]) -> Playing {
        Playing::start_with(&mut quietcores(), more)
    }

    fn start_with(command: &mut Command, more: &[&str]) -> Playing {
        let dir = public_folder();
        let socket = dir.path().join("s.sock");
        let child = command
            .args(["--json", "--control"])
            .arg(&socket)
            .arg("--presets")
            .arg(dir.path().join("presets"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(since.elapsed() < Duration::from_secs(60), "no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
        Playing { child, socket, _dir: dir }
    }

    fn client(&self) -> Client {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    /// Ends it by its own word; what it says of itself.
    fn quit(mut self) -> Value {
        // The other clients may still be on their way out.
        let since = Instant::now();
        while self.client().ask("{\"do\":\"quit\"}")["ok"] != true {
            assert!(since.elapsed() < Duration::from_secs(60), "no place at the socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert!(!self.socket.exists(), "the socket is gone with the program");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        // A closed connection is an answer, too.
        match self.0.read_line(&mut line) {
            Ok(0) | Err(_) => Value::Null,
            Ok(_) => serde_json::from_str(&line).unwrap(),
        }
    }

    fn ask(&mut self, line: &str) -> Value {
        if self.send(format!("{line}\n").as_bytes()).is_err() {
            return Value::Null;
        }
        self.hear()
    }
}

#[test]
fn it_plays_and_tells_how_it_went() {
    let output = quietcores().args(["--for", "2s", "--control", "none", "--json"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let played: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(played["schema"], "quietcores.played/1");
    assert_eq!((&played["strip"], &played["status"]["period"]), (&"wire".into(), &256.into()));
    let blocks = played["status"]["blocks"].as_u64().unwrap();
    let missed = played["status"]["missed"].as_u64().unwrap();
    // Two seconds of 5.33 ms, less what it took to begin: every period is accounted for, played or missed.
    assert!(blocks + missed >= 100, "{blocks} blocks, {missed} missed");
    assert!(played["hits"]["thread"]["voluntary_switches"].as_u64().unwrap() > 0);
}

#[test]
fn requests_are_answered_and_what_is_wrong_is_a_sentence() {
    let playing = Playing::start(&[]);
    let mode = playing.socket.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for this user alone");
    let mut client = playing.client();
    let stats = client.ask(r#"{"id":"a","do":"stats"}"#);
    assert_eq!((&stats["ok"], &stats["id"]), (&true.into(), &"a".into()));
    assert_eq!((&stats["rate"], &stats["mode"]), (&48_000.into(), &"sleep".into()));
    assert_eq!(client.ask(r#"{"do":"params"}"#)["params"], Value::Array(vec![]));
    assert_eq!(client.ask(r#"{"do":"bypass","on":true}"#)["ok"], true);
    assert_eq!(client.ask(r#"{"do":"save","preset":"one two"}"#)["ok"], true);
    assert_eq!(client.ask(r#"{"do":"bypass","on":false}"#)["ok"], true);
    assert_eq!(client.ask(r#"{"do":"presets"}"#)["presets"][0], "one two");
    assert_eq!(client.ask(r#"{"do":"load","preset":"one two"}"#)["ok"], true);
    assert_eq!(client.ask(r#"{"do":"stats"}"#)["bypass"], true, "as it was saved");
    for (line, says) in [
        ("no json", "no JSON"),
        ("{\"do\":\"fly\"}", "`do` is"),
        ("{\"do\":\"set\",\"param\":\"x\",\"value\":1}", "no parameters"),
        ("{\"do\":\"swap\"}", "strip, amp and ir"),
        ("{\"do\":\"load\",\"preset\":\"../../etc/passwd\"}", "letters"),
        ("{\"do\":\"load\",\"preset\":\"absent\"}", "no preset"),
        ("{\"do\":\"swap\",\"strip\":\"/absent.toml\"}", "/absent.toml"),
    ] {
        let answer = client.ask(line);
        assert_eq!(answer["ok"], false, "{line}");
        assert!(answer["error"].as_str().unwrap().contains(says), "{line}: {answer}");
    }
    // A second program finds the socket taken.
    let mut second = quietcores();
    let second = second.arg("--control").arg(&playing.socket).args(["--for", "1s"]).output();
    let second = second.unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another program listens"));
    playing.quit();
}

#[test]
fn strips_are_swapped_and_turned_while_they_sound() {
    let dir = tempfile::tempdir().unwrap();
    let strip = |name: &str, gain: f32| {
        let path = dir.path().join(format!("{name}.toml"));
        let text = format!(
            "[strip]\nname = \"{name}\"\n[[stage]]\nkind = \"gain\"\nname = \"out\"\ngain = {gain:.1}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    };
    let (soft, loud) = (strip("soft", -20.0), strip("loud", 6.0));
    let playing = Playing::start(&[soft.to_str().unwrap()]);
    let mut client = playing.client();
    let params = client.ask(r#"{"do":"params"}"#);
    assert_eq!(params["strip"], "soft");
    assert_eq!(
        (&params["params"][0]["name"], &params["params"][0]["value"]),
        (&"out.gain".into(), &(-20.0).into())
    );
    assert_eq!(client.ask(r#"{"do":"set","param":"out.gain","value":-3}"#)["ok"], true);
    let beyond = client.ask(r#"{"do":"set","param":"out.gain","value":1e9}"#);
    assert!(beyond["error"].as_str().unwrap().contains("it can be"), "{beyond}");
    assert_eq!(client.ask(r#"{"do":"save","preset":"mine"}"#)["ok"], true);
    let swap = format!("{{\"do\":\"swap\",\"strip\":\"{}\"}}", loud.display());
    let swapped = client.ask(&swap);
    assert_eq!((&swapped["ok"], &swapped["strip"]), (&true.into(), &"loud".into()), "{swapped}");
    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, "[[stage]]\nkind = \"gian\"\n").unwrap();
    let answer = client.ask(&format!("{{\"do\":\"swap\",\"strip\":\"{}\"}}", bad.display()));
    assert!(answer["error"].as_str().unwrap().contains("gian"), "{answer}");
    assert_eq!(client.ask(r#"{"do":"stats"}"#)["strip"], "loud", "what is wrong changes nothing");
    assert_eq!(client.ask(r#"{"do":"load","preset":"mine"}"#)["ok"], true);
    assert_eq!(client.ask(r#"{"do":"params"}"#)["params"][0]["value"], -3.0);
    // What was swapped out comes home; the fades take their time.
    let since = Instant::now();
    while client.ask(r#"{"do":"stats"}"#)["collected"].as_u64() < Some(2) {
        assert!(since.elapsed() < Duration::from_secs(60), "spent strips did not come home");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(playing.quit()["strip"], "soft");
}

/// Processes that `parent` has started, with their arguments.
fn children_of(parent: u32) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
    let parent = format!("PPid:\t{parent}\n");
    numbers
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|status| status.contains(&parent))
        })
        .map(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&line).replace('\0', " "))
        })
        .collect()
}

fn kill(pid: u32) {
    let done = Command::new("kill").args(["-9", &pid.to_string()]).output().unwrap();
    let _ = done.status;
}

#[test]
fn what_breaks_the_reader_of_a_strip_does_not_reach_the_sound() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let own = write("own.toml", "[strip]\nname = \"own\"\n[[stage]]\nkind = \"gain\"\n");
    let other = write("other.toml", "[strip]\nname = \"other\"\n[[stage]]\nkind = \"gain\"\n");
    // Long to read, and no amp: whoever reads it can be met at work.
    let amp = std::fs::File::create(dir.path().join("long.nam")).unwrap();
    amp.set_len(200 << 20).unwrap();
    let long = write("long.toml", "[[stage]]\nkind = \"amp\"\nfile = \"long.nam\"\n");
    let playing = Playing::start(&[own.to_str().unwrap()]);
    let mut client = playing.client();
    let swap = |path: &Path| format!(r#"{{"do":"swap","strip":"{}"}}"#, path.display());
    let tasters = || {
        let own = children_of(playing.child.id()).into_iter();
        own.filter(|(_, line)| line.contains(" taster")).map(|(pid, _)| pid).collect::<Vec<_>>()
    };
    let [taster] = tasters()[..] else { panic!("{:?}", children_of(playing.child.id())) };
    let since = Instant::now();
    loop {
        client.send(format!("{}\n", swap(&long)).as_bytes()).unwrap();
        // It may have come and gone between two looks.
        let sent = Instant::now();
        let reader = loop {
            let reader = children_of(taster).first().map(|(pid, _)| *pid);
            if reader.is_some() || sent.elapsed() > Duration::from_secs(2) {
                break reader;
            }
        };
        if let Some(reader) = reader {
            kill(reader);
        }
        let answer = client.hear();
        let error = answer["error"].as_str().unwrap();
        if error.contains("broke off (signal: 9") {
            break;
        }
        assert!(error.contains("long.nam"), "{answer}");
        assert!(since.elapsed() < Duration::from_secs(60), "{answer}");
    }
    assert_eq!(client.ask(r#"{"do":"stats"}"#)["strip"], "own", "it sounds on");
    assert_eq!(client.ask(&swap(&other))["ok"], true, "and takes the next one");
    // Without the one that has strips tried, it still takes good ones.
    kill(taster);
    assert_eq!(client.ask(&swap(&own))["ok"], true);
    assert_eq!(client.ask(&swap(&other))["ok"], true);
    assert!(tasters().is_empty());
    assert_eq!(playing.quit()["strip"], "other");
}

#[test]
fn abuse_of_the_socket_does_not_reach_the_sound() {
    let playing = Playing::start(&[]);
    let before = playing.client().ask(r#"{"do":"stats"}"#);
    // A line without an end, and then a good one.
    let mut huge = playing.client();
    huge.send(&vec![b'x'; 1 << 20]).unwrap();
    let answer = huge.hear();
    assert!(answer["error"].as_str().unwrap().contains("longer than"), "{answer}");
    huge.send(b"\n").unwrap();
    assert_eq!(huge.ask(r#"{"do":"stats"}"#)["ok"], true, "the next line is heard");
    // Half a line, and gone.
    playing.client().send(br#"{"do":"qui"#).unwrap();
    // A request that is sent byte by byte.
    let mut slow = playing.client();
    for byte in b"{\"do\":\"params\"}\n" {
        slow.send(&[*byte]).unwrap();
    }
    assert_eq!(slow.hear()["ok"], true);
    drop((huge, slow));
    // One that asks and never reads is put out, or made to wait: this end notices by itself.
    let mut flood = playing.client();
    flood.0.get_mut().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let lines = b"{\"do\":\"stats\"}\n{\n".repeat(1000);
    let mut pushed = 0;
    while pushed < 200 && flood.send(&lines).is_ok() {
        pushed += 1;
    }
    drop(flood);
    // Two thousand come; sixteen at a time are let in, the others hear why not.
    let mut crowd: Vec<Client> = Vec::new();
    let mut refused = 0;
    for n in 0..2000 {
        let mut client = playing.client();
        if n % 100 == 0 {
            let answer = client.ask(r#"{"do":"stats"}"#);
            if answer["ok"] == true {
                crowd.push(client);
            } else {
                refused += 1;
            }
        } else if n % 7 == 0 {
            let _ = client.send(b"\xff\x00{{{\n");
        }
        if crowd.len() > 30 {
            crowd.clear();
        }
    }
    assert!(!crowd.is_empty() || refused > 0);
    drop(crowd);
    // Sixteen that are surely in (the dead of before take their time to be buried): no seat left.
    let mut held: Vec<Client> = Vec::new();
    let since = Instant::now();
    while held.len() < 16 {
        assert!(since.elapsed() < Duration::from_secs(60), "only {} got in", held.len());
        let mut client = playing.client();
        if client.ask(r#"{"do":"stats"}"#)["ok"] == true {
            held.push(client);
        }
    }
    let answer = playing.client().hear();
    assert!(answer["error"].as_str().unwrap().contains("16 clients"), "{answer}");
    drop(held);
    let played = playing.quit();
    let status = &played["status"];
    assert!(status["blocks"].as_u64() > before["blocks"].as_u64(), "it has played on");
    assert_eq!(status["broken"], 0);
    assert_eq!(status["dropped_events"], 0);
}

#[test]
fn what_lies_in_the_place_of_the_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.txt");
    std::fs::write(&file, "mine").unwrap();
    let output = quietcores().arg("--control").arg(&file).args(["--for", "1s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no socket"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    // A socket that nobody listens at is taken over.
    let stale = dir.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let output = quietcores().arg("--control").arg(&stale).args(["--for", "100ms"]).output();
    assert!(output.unwrap().status.success());
    assert!(!stale.exists());
}

/// `play` on two CPUs makes what it makes on one, a period later; `render` makes the same.
#[test]
fn a_file_goes_through_two_cpus_as_through_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut seed = 1u32;
    let noise = (0..9600).map(|_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as i16 / 4
    });
    wav(path("in.wav").as_ref(), &noise.collect::<Vec<_>>());
    let strip = "[[stage]]\nkind = \"biquad\"\ntype = \"lowpass\"\nfrequency = 900.0\n\n\
                 [[stage]]\nkind = \"ir\"\ntaps = [0.5, 0.0, -0.25]\n\n\
                 [[stage]]\nkind = \"compressor\"\nthreshold = -40.0\n";
    std::fs::write(path("strip.toml"), strip).unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_quietcores")).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        said + &String::from_utf8_lossy(&output.stdout)
    };
    let bits = |name: &str| {
        let made = std::fs::read(path(name)).unwrap();
        let data = made.windows(4).position(|w| w == b"data").unwrap() + 8;
        made[data..].as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect::<Vec<_>>()
    };
    for cores in ["1", "2"] {
        let (played, rendered) =
            (path(&format!("played{cores}")), path(&format!("rendered{cores}")));
        let (from, strip) = (path("in.wav"), path("strip.toml"));
        let said = run(&[
            "play",
            &strip,
            "--host",
            "file",
            "--channels",
            "1",
            // A file waits, on a slow machine too.
            "--force",
            "--control",
            "none",
            "--input",
            &from,
            "--output",
            &played,
            "--cores",
            cores,
        ]);
        assert_eq!(said.contains("on two CPUs"), cores == "2", "{said}");
        let said = run(&["render", &from, &rendered, &strip, "--tail", "0s", "--cores", cores]);
        assert_eq!(said.contains("on two CPUs"), cores == "2", "{said}");
    }
    let (one, two) = (bits("played1"), bits("played2"));
    assert!(one.iter().any(|y| f32::from_bits(*y).abs() > 0.01));
    assert_eq!((one.len(), two.len()), (9600, 9600));
    assert_eq!(two[..64], [0; 64]);
    assert_eq!(two[64..], one[..9600 - 64]);
    assert_eq!(bits("rendered1"), bits("rendered2"));
    assert_eq!(bits("rendered1"), one);
}

#[test]
fn a_file_goes_through_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.wav"), dir.path().join("out.wav"));
    wav(&from, &(0..4800).map(|n| (n * 37 % 65_536 - 32_768) as i16).collect::<Vec<_>>());
    let output = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["play", "--host", "file", "--channels", "1", "--control", "none", "--input"])
        .arg(&from)
        .arg("--output")
        .arg(&to)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = std::fs::read(&to).unwrap();
    let data = made.windows(4).position(|w| w == b"data").unwrap() + 8;
    let samples: Vec<f32> = made[data..]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    assert_eq!(samples.len(), 4800);
    for (n, sample) in samples.iter().enumerate() {
        assert_eq!(sample * 32_768.0, (n as i32 * 37 % 65_536 - 32_768) as f32);
    }
}

/// 16 bits, one channel, 48000 a second.
fn wav(path: &Path, samples: &[i16]) {
    let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + bytes.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend([1, 0, 1, 0]);
    file.extend(48_000u32.to_le_bytes());
    file.extend(96_000u32.to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend((bytes.len() as u32).to_le_bytes());
    file.extend(bytes);
    std::fs::write(path, file).unwrap();
}

#[test]
fn nonsense_is_refused_with_the_remedy() {
    for (args, says) in [
        (&["--rate", "3"][..], "--rate 48000"),
        (&["--channels", "0"], "1 to 64"),
        (&["--cpu", "4000"], "online are"),
        (&["--cable", "5000000"], "the cable delays"),
        (&["/absent.toml", "--for", "1s"], "absent.toml"),
    ] {
        let output = quietcores().args(["--control", "none"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn a_kernel_without_another_core_is_said_to_have_none() {
    if Path::new("/dev/evl/control").exists() {
        return skip(Why::Machine("this kernel has an EVL core".to_owned()));
    }
    let cpu = own_cpus().first().unwrap().to_string();
    let arguments = ["--control", "none", "--core", "evl", "--cpu", &cpu, "--for", "1s"];
    let output = quietcores().args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no EVL core") && said.contains("CONFIG_EVL"), "{said}");
}

#[test]
fn another_core_plays_on_what_is_polled_alone() {
    let output = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["play", "--host", "file", "--input", "a.wav", "--output", "b.wav", "--core", "evl"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--host hda or --host null"), "{said}");
}

/// Runs `what` in a thread that is nobody, and has none of root's powers any more.
fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    use rustix::{
        process::{Gid, Uid},
        thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
    };
    let become_nobody = || {
        let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        what()
    };
    std::thread::scope(|scope| scope.spawn(become_nobody).join().unwrap())
}

#[test]
fn another_user_does_not_reach_the_socket() {
    if !is_root() {
        return skip(Why::Root);
    }
    let playing = Playing::start(&[]);
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // The directory hides it; where that is open, the socket's own mode refuses.
    let dir = playing.socket.parent().unwrap();
    open(dir, 0o700);
    let connect = || as_nobody(|| UnixStream::connect(&playing.socket).map_err(|e| e.kind()));
    assert_eq!(connect().unwrap_err(), std::io::ErrorKind::PermissionDenied);
    open(dir, 0o755);
    assert_eq!(connect().unwrap_err(), std::io::ErrorKind::PermissionDenied);
    // And where somebody opens that as well, the server looks at who is there.
    open(&playing.socket, 0o666);
    let stream = connect().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut stranger = Client(BufReader::new(stream));
    // It is refused as it comes, before it asks for anything.
    let answer = stranger.hear();
    assert!(answer["error"].as_str().unwrap().contains("another user"), "{answer}");
    assert_eq!(stranger.ask(r#"{"do":"quit"}"#), Value::Null, "and it is put out");
    assert_eq!(playing.client().ask(r#"{"do":"stats"}"#)["ok"], true, "it plays on");
    playing.quit();
}

/// What strace sees of the playing thread in `time`, and how many page faults and switches of its
/// own accord it has meanwhile.
fn watch(pid: u32, time: Duration) -> (Vec<String>, u64, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let task = tasks
        .map(|task| task.unwrap().path())
        .find(|task| std::fs::read_to_string(task.join("comm")).unwrap().trim() == "quiet-engine")
        .unwrap();
    let numbers = || {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap();
        // After the name: state is the third field, faults are the tenth and the twelfth.
        let after: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let faults: u64 = after[7].parse::<u64>().unwrap() + after[9].parse::<u64>().unwrap();
        (faults, quiet_testing::sleeps(&task))
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace")
        .args(["-p", task.file_name().unwrap().to_str().unwrap(), "-o"])
        .arg(out.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // To be stopped for the tracer is a switch too: on a busy machine it comes late.
    let until = Instant::now() + Duration::from_secs(60);
    let traced = || {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let word = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap().trim();
        word("TracerPid:") != "0" && !word("State:").starts_with('t')
    };
    while !traced() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let before = numbers();
    std::thread::sleep(time);
    let after = numbers();
    let pid = rustix::process::Pid::from_child(&strace);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    strace.wait().unwrap();
    let calls = std::fs::read_to_string(out.path()).unwrap();
    // What strace itself says stands between three signs.
    let calls = calls.lines().filter(|l| l.contains('(') && !l.starts_with("---"));
    (calls.map(str::to_owned).collect(), after.0 - before.0, after.1 - before.1)
}

#[test]
fn the_steady_state_has_no_system_call_and_no_page_fault() {
    let works = Command::new("strace").arg("true").stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return match program("strace") {
            None => skip(Why::Program("strace", "strace")),
            Some(_) => skip(Why::Machine("strace may trace nothing here".to_owned())),
        };
    }
    // Nobody takes its CPU away meanwhile.
    machine_still();
    if cpus() < 2 {
        return skip(Why::OneCpu);
    }
    let last = own_cpus().iter().last().unwrap().to_string();
    // With a limit on real-time running it stays an ordinary thread: the tests beside it live.
    let mut limited = Playing::start_with(
        Command::new("prlimit")
            .arg("--rttime=60000000:60000000")
            .arg(env!("CARGO_BIN_EXE_quietcores"))
            .args(["play", "--host", "null", "--period", "64", "--mode", "never-sleep"])
            .args(["--cpu", &last]),
        &[],
    );
    let (calls, faults, sleeps) = watch(limited.child.id(), Duration::from_secs(10));
    println!(
        "never-sleep, 10 s: {} system calls, {faults} page faults, {sleeps} sleeps",
        calls.len()
    );
    assert!(calls.is_empty(), "{calls:?}");
    assert_eq!((faults, sleeps), (0, 0));
    // It played meanwhile.
    let stats = limited.client().ask(r#"{"do":"stats"}"#);
    assert!(stats["blocks"].as_u64().unwrap() > 1000, "{stats}");
    limited.child.kill().unwrap();
    // The same eyes see the sleeping loop sleep.
    let asleep = Playing::start(&[]);
    let (calls, _, sleeps) = watch(asleep.child.id(), Duration::from_secs(1));
    assert!(!calls.is_empty() && sleeps > 0, "{} calls, {sleeps} sleeps", calls.len());
}

/// A line of `/proc/PID/task/TID/status` for each thread.
fn of_threads(pid: u32, key: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // One may end between two looks.
    let line = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    tasks.filter_map(line).collect()
}

/// Whether this kernel has Landlock: where not, what plays says so, and that is looked at instead.
fn landlock() -> bool {
    quiet_linux::walls::Walls::new().missing().is_none()
}

#[test]
fn what_plays_reaches_nothing_but_its_folders() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let strip = "[strip]\nchannels = 2\n[[stage]]\nkind = \"gain\"\ngain = -3.0\n";
    let (own, far) = (inside.path().join("own.toml"), outside.path().join("far.toml"));
    std::fs::write(&own, strip).unwrap();
    std::fs::write(&far, strip).unwrap();
    let playing = Playing::start(&[own.to_str().unwrap()]);
    let pid = playing.child.id();
    // Every thread, also that which plays.
    for (key, wanted) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
        let found = of_threads(pid, key);
        assert!(found.len() >= 2 && found.iter().all(|one| one == wanted), "{key} {found:?}");
    }
    let mut client = playing.client();
    let blocks = |client: &mut Client| client.ask(r#"{"do":"stats"}"#)["blocks"].as_u64().unwrap();
    let before = blocks(&mut client);
    let swap = |path: &Path| format!(r#"{{"do":"swap","strip":"{}"}}"#, path.display());
    for path in [far.as_path(), Path::new("/etc/shadow")] {
        let answer = client.ask(&swap(path));
        if landlock() {
            let said = answer["error"].as_str().unwrap();
            assert!(said.contains("ermission denied") && said.contains("--allow DIR"), "{said}");
        }
    }
    // Nor by a way that leads out of the folder.
    let link = inside.path().join("link.toml");
    std::os::unix::fs::symlink(&far, &link).unwrap();
    assert_eq!(client.ask(&swap(&link))["ok"], !landlock());
    // What sounds goes on, and what is allowed is taken.
    assert_eq!(client.ask(&swap(&own))["ok"], true);
    let since = Instant::now();
    while blocks(&mut client) <= before {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not sound any more");
        std::thread::sleep(Duration::from_millis(10));
    }
    let played = playing.quit();
    let missing =
        played["findings"].as_array().unwrap().iter().any(|f| f["id"] == "play.no_landlock");
    assert_eq!(missing, !landlock(), "{played}");

    // Allowed, it is read; and where no strip is named, only then.
    let playing = Playing::start(&["--allow", outside.path().to_str().unwrap()]);
    let mut client = playing.client();
    assert_eq!(client.ask(&swap(&far))["ok"], true);
    assert_eq!(client.ask(&swap(&own))["ok"], !landlock());
    playing.quit();
}

#[test]
fn root_keeps_no_right_that_playing_does_not_need() {
    if !is_root() {
        return skip(Why::Root);
    }
    let all = |pid, key: &str, wanted: &str| {
        let found = of_threads(pid, key);
        assert!(found.len() >= 2 && found.iter().all(|one| one == wanted), "{key} {found:?}");
    };
    // CAP_IPC_LOCK stays where root may not lift the limit of locked memory.
    let none_but_locking = |pid| {
        for text in ["CapEff:", "CapPrm:"].into_iter().flat_map(|set| of_threads(pid, set)) {
            let left = u64::from_str_radix(&text, 16).unwrap();
            assert_eq!(left & !(1 << 14), 0, "{text}");
        }
    };
    let playing = Playing::start(&[]);
    let pid = playing.child.id();
    all(pid, "Uid:", "0 0 0 0");
    for set in ["CapInh:", "CapAmb:"] {
        all(pid, set, "0000000000000000");
    }
    none_but_locking(pid);
    all(pid, "NoNewPrivs:", "1");
    all(pid, "Seccomp:", "2");
    playing.quit();

    // As another user: his file plays, is swapped for another, and what is root's alone is not read.
    let dir = public_folder();
    let path = |name: &str| dir.path().join(name);
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(dir.path(), 0o777);
    for name in ["first.toml", "second.toml", "roots.toml"] {
        std::fs::write(
            path(name),
            "[strip]\nchannels = 2\n[[stage]]\nkind = \"gain\"\ngain = -3.0\n",
        )
        .unwrap();
        open(&path(name), 0o644);
    }
    open(&path("roots.toml"), 0o600);
    std::os::unix::fs::chown(path("first.toml"), Some(65_534), Some(65_534)).unwrap();
    // By the option, by who called sudo, and by whose file it is.
    for (options, sudo) in [(&["--user", "65534"][..], "0"), (&[], "65534"), (&[], "0")] {
        let socket = path("s.sock");
        let mut command = quietcores();
        command.args(["--json", "--control"]).arg(&socket).args(options).arg(path("first.toml"));
        command.env("SUDO_UID", sudo).env("SUDO_GID", sudo).env("SUDO_HOME", "/nonexistent");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let since = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(since.elapsed() < Duration::from_secs(60), "no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = child.id();
        all(pid, "Uid:", "65534 65534 65534 65534");
        none_but_locking(pid);
        all(pid, "NoNewPrivs:", "1");
        all(pid, "Seccomp:", "2");
        // Root may talk to it all the same.
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client(BufReader::new(stream));
        let swap = |name: &str| format!(r#"{{"do":"swap","strip":"{}"}}"#, path(name).display());
        assert_eq!(client.ask(&swap("second.toml"))["ok"], true);
        let refused = client.ask(&swap("roots.toml"));
        assert!(refused["error"].as_str().unwrap().contains("ermission denied"), "{refused}");
        assert_eq!(client.ask(r#"{"do":"quit"}"#)["ok"], true);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("root's rights are given up"), "{said}");
    }
    let output = quietcores().args(["--user", "no-such-user", "--for", "1s"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("no-such-user"), "{said}");
}
