//! `top` and `serve`, as programs: the stream, the screen in a terminal, the doors of the server.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Machine, PROGRAM, read, soon, text};
use quiet_testing::{
    Why,
    faces::{self, Ended, Server, Tmux},
    skip,
};
use quiet_types::live::Moment;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

fn moments(state: &Path, more: &[&str]) -> Vec<Moment> {
    let mut command = Command::new(PROGRAM);
    let done = command.args(["top", "--json", "--state"]).arg(state).args(more).output().unwrap();
    assert!(done.status.success(), "{}", text(&done));
    let told = String::from_utf8(done.stdout).unwrap();
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_stream_is_a_moment_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let told = moments(dir.path(), &["--moments", "3", "--rate", "10"]);
    assert_eq!(told.len(), 3);
    assert!(told.windows(2).all(|two| two[0].number < two[1].number));
    assert!(told[2].cpus.iter().filter(|cpu| cpu.online).count() > 0);
    assert!(told[2].cpus.iter().any(|cpu| cpu.ticks > 0 || cpu.busy.is_some()));
    // Who has seen enough is no error.
    let mut head = Command::new(PROGRAM)
        .args(["top", "--json", "--rate", "10"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(head.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with(r#"{"schema":"quietcores.live/1""#));
    assert!(head.wait().unwrap().success());
    let drawn = Command::new(PROGRAM).arg("top").stdin(Stdio::null()).output().unwrap();
    assert_eq!(drawn.status.code(), Some(2));
    assert!(text(&drawn).contains("add --json"), "{}", text(&drawn));
}

/// `top` on a terminal of this size, before anything is pressed.
fn top_of(machine: &Machine, size: (u32, u32)) -> Tmux {
    let top = format!(
        "LC_ALL=C NO_COLOR=1 {PROGRAM} top --cpus {} --state {}; echo left with $?; sleep 600",
        machine.cpu,
        machine.state().display()
    );
    let tmux = Tmux::start(size, &top);
    tmux.shows("OPEN No shield is up");
    tmux
}

#[test]
fn keys_in_a_terminal_apply_confirm_lend_and_put_back() {
    if quiet_testing::program("tmux").is_none() {
        return skip(Why::Program("tmux", "tmux"));
    }
    let Some(machine) = Machine::take() else { return };
    let tmux = top_of(&machine, (80, 24));
    let screen = tmux.screen();
    assert!(screen.is_ascii() && screen.lines().all(|line| line.len() <= 80), "{screen}");
    tmux.key("?");
    tmux.shows("put the machine back");
    tmux.key("Escape");
    // Escape and a letter that are read together are Alt and that letter.
    soon("the help is away", || !tmux.screen().contains("put the machine back"));
    tmux.key("p");
    tmux.shows("nothing is changed yet");
    tmux.key("q");
    soon("the plan is away", || !tmux.screen().contains("nothing is changed yet"));
    // No is no.
    tmux.key("a");
    tmux.shows("Put a shield up");
    tmux.key("n");
    tmux.shows("not done");
    assert!(!machine.state().join("journal.jsonl").exists());
    tmux.key("a");
    tmux.shows("Put a shield up");
    tmux.key("y");
    tmux.shows("unless confirmed: press c");
    tmux.key("c");
    tmux.shows("the shield stays");
    soon("it is confirmed", || !tmux.screen().contains("unless confirmed"));
    tmux.key("l");
    tmux.shows("to everybody for 10 min");
    tmux.key("y");
    tmux.shows("LENT");
    tmux.key("l");
    soon("it is taken back", || !tmux.screen().contains("LENT"));
    tmux.key("r");
    tmux.shows("Put the machine back");
    tmux.key("y");
    tmux.shows("OPEN No shield is up");
    tmux.key("q");
    tmux.shows("left with 0");
}

/// Where `what` stands on the screen, as a mouse counts: column and row from 1 on.
fn place(tmux: &Tmux, what: &str) -> (usize, usize) {
    let screen = tmux.screen();
    let mut rows = screen.lines().enumerate();
    rows.find_map(|(row, line)| Some((line.find(what)? + 1, row + 1)))
        .unwrap_or_else(|| panic!("{what} is not on the screen:\n{screen}"))
}

/// The bytes that a terminal sends for a mouse (SGR, 1006): a button pressed there and let go, or a turn of the wheel.
fn mouse(tmux: &Tmux, button: u8, (column, row): (usize, usize)) {
    let pressed = format!("\x1b[<{button};{column};{row}M\x1b[<{button};{column};{row}m");
    tmux.run(&["send-keys", "-t", "top", "-l", &pressed]);
}

#[test]
fn the_mouse_alone_applies_and_puts_back() {
    if quiet_testing::program("tmux").is_none() {
        return skip(Why::Program("tmux", "tmux"));
    }
    let Some(machine) = Machine::take() else { return };
    let tmux = top_of(&machine, (100, 30));
    mouse(&tmux, 0, place(&tmux, "? help"));
    tmux.shows("put the machine back");
    // A press anywhere takes it away.
    mouse(&tmux, 0, (3, 3));
    soon("the help is away", || !tmux.screen().contains("put the machine back"));
    mouse(&tmux, 0, place(&tmux, "a apply"));
    tmux.shows("Put a shield up");
    mouse(&tmux, 0, (2, 2));
    tmux.shows("not done");
    assert!(!machine.state().join("journal.jsonl").exists());
    mouse(&tmux, 0, place(&tmux, "a apply"));
    tmux.shows("y: do it");
    mouse(&tmux, 0, place(&tmux, "y: do it"));
    tmux.shows("unless confirmed: press c");
    mouse(&tmux, 0, place(&tmux, "c confirm"));
    tmux.shows("the shield stays");
    // The wheel chooses a CPU, as the arrows do; one that is pressed on the map is told of first.
    mouse(&tmux, 65, (5, 5));
    let first = |number: u32| {
        move |screen: String| {
            let mut lines = screen.lines().skip_while(|line| !line.starts_with("Who was there"));
            lines.nth(1).is_some_and(|line| line.starts_with(&format!("CPU {number} ")))
        }
    };
    mouse(&tmux, 0, place(&tmux, " 0 "));
    soon("CPU 0 is told of first", || first(0)(tmux.screen()));
    mouse(&tmux, 0, place(&tmux, "r revert"));
    tmux.shows("y: do it");
    mouse(&tmux, 0, place(&tmux, "y: do it"));
    tmux.shows("OPEN No shield is up");
    mouse(&tmux, 0, place(&tmux, "q quit"));
    tmux.shows("left with 0");
}

/// A QR code of a terminal's characters as a picture: light where something is drawn, as a camera sees light letters.
fn picture(lines: &[&str], is_half: bool) -> Vec<u8> {
    const SCALE: usize = 6;
    let mut modules: Vec<Vec<bool>> = Vec::new();
    for line in lines {
        if is_half {
            modules.push(line.chars().map(|c| "\u{2588}\u{2580}".contains(c)).collect());
            modules.push(line.chars().map(|c| "\u{2588}\u{2584}".contains(c)).collect());
        } else {
            modules.push(line.chars().step_by(2).map(|c| c == '#').collect());
        }
    }
    let wide = modules.iter().map(Vec::len).max().unwrap();
    let mut pgm = format!("P5\n{} {}\n255\n", wide * SCALE, modules.len() * SCALE).into_bytes();
    for row in &modules {
        for _ in 0..SCALE {
            let light = (0..wide).map(|at| row.get(at).copied().unwrap_or_default());
            pgm.extend(light.flat_map(|light| [if light { 255u8 } else { 0 }; SCALE]));
        }
    }
    pgm
}

#[test]
fn the_qr_code_holds_the_address_by_another_programs_reading() {
    if quiet_testing::program("zbarimg").is_none() {
        return skip(Why::Program("zbarimg", "zbar-tools"));
    }
    let dir = tempfile::tempdir().unwrap();
    for (locale, is_half) in [("C.UTF-8", true), ("C", false)] {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--as-root", "--listen", "127.0.0.1:0", "--qr", "--state"])
            .arg(dir.path())
            .arg("--store")
            .arg(dir.path().join("store"))
            .env("XDG_RUNTIME_DIR", dir.path())
            .env("LC_ALL", locale)
            .env_remove("LANG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.next().unwrap();
        // As many lines as make a square: two modules a line, or two characters a module.
        let first = lines.next().unwrap();
        let modules = if is_half { first.chars().count() } else { first.len() / 2 };
        let rest = if is_half { modules.div_ceil(2) } else { modules } - 1;
        let code: Vec<String> = std::iter::once(first).chain(lines.take(rest)).collect();
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(code[0].is_ascii(), !is_half, "{code:?}");
        let file = dir.path().join("code.pgm");
        let code: Vec<&str> = code.iter().map(String::as_str).collect();
        fs::write(&file, picture(&code, is_half)).unwrap();
        let read = Command::new("zbarimg").args(["-q", "--raw"]).arg(&file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), address, "{}", text(&read));
    }
}

#[test]
fn a_name_on_the_network_is_one_of_the_servers_names() {
    let dir = tempfile::tempdir().unwrap();
    let label = format!("quietcores-{}", std::process::id());
    let serve = |listen: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--as-root", "--listen", listen, "--mdns", &label, "--state"]);
        command.arg(dir.path()).arg("--store").arg(dir.path().join("store"));
        command.env("XDG_RUNTIME_DIR", dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = serve("127.0.0.1:0");
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    if address.is_empty() {
        let said = text(&child.wait_with_output().unwrap());
        return skip(Why::Machine(format!("no multicast on loopback: {said}")));
    }
    let host = address.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let port = host.strip_prefix(&format!("{label}.local:")).unwrap().to_owned();
    let ask_at = |at: &str, host: &str| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(machine::PATIENCE)).unwrap();
        let request =
            format!("GET /icon.svg HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let ask = |host: &str| ask_at(&format!("127.0.0.1:{port}"), host);
    assert_eq!(ask(&host), "200");
    assert_ne!(ask(&format!("other.local:{port}")), "200");
    // The same name for another address of this machine is somebody else's: it gets the next one, and says so.
    let mut second = Ended(serve("127.0.0.2:0"));
    let mut address = String::new();
    BufReader::new(second.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    assert!(address.starts_with(&format!("http://{label}-2.local:")), "{address}");
    let own = address.split("://").nth(1).unwrap().split('/').next().unwrap();
    let (_, port) = own.split_once(':').unwrap();
    let at = format!("127.0.0.2:{port}");
    assert_eq!(ask_at(&at, own), "200");
    assert_ne!(ask_at(&at, &format!("{label}.local:{port}")), "200");
    let said = BufReader::new(second.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let has = format!("127.0.0.1 has the name {label}.local: {label}-2.local is said in its place");
    assert!(said.take(5).any(|line| line.contains(&has)));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--as-root", "--listen", "127.0.0.1:0", "--mdns", "a.b"]);
    let refused = command.env("XDG_RUNTIME_DIR", dir.path()).output().unwrap();
    assert!(text(&refused).contains("no name"), "{}", text(&refused));
}

/// A window that is closed, a line that is cut: the screen is nobody's, and costs nothing any more.
#[test]
fn a_terminal_that_goes_away_ends_the_screen() {
    if quiet_testing::program("tmux").is_none() {
        return skip(Why::Program("tmux", "tmux"));
    }
    let tmux = Tmux(tempfile::tempdir().unwrap());
    let (state, note) = (tmux.0.path().join("state"), tmux.0.path().join("pid"));
    let top = format!(
        "echo $$ > {}; exec {PROGRAM} top --cpus 0 --state {}",
        note.display(),
        state.display()
    );
    tmux.begin((80, 24), &top);
    tmux.shows("No shield is up");
    let pid = fs::read_to_string(note).unwrap();
    let shown = Path::new("/proc").join(pid.trim());
    assert!(shown.exists());
    tmux.run(&["kill-server"]);
    soon("the screen has ended", || {
        // Its first process may never collect it.
        !fs::read_to_string(shown.join("stat")).is_ok_and(|stat| !stat.contains(") Z "))
    });
}

#[test]
fn serve_keeps_its_token_and_serves_no_other_machine_as_root() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(PROGRAM, (dir.path(), dir.path()), &["--listen", "127.0.0.1:0"]);
    let token = server.token().to_owned();
    assert_eq!(server.ask("GET", "/api/v1/live", "").0, 200);
    server.stop();
    let server = Server::start(PROGRAM, (dir.path(), dir.path()), &["--listen", "127.0.0.1:0"]);
    assert_eq!(server.token(), token);
    let refused = Command::new(PROGRAM)
        .args(["serve", "--as-root", "--listen", server.at()])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("give --listen another one"), "{}", text(&refused));
    server.stop();
    let server = Server::start(
        PROGRAM,
        (dir.path(), dir.path()),
        &["--listen", "127.0.0.1:0", "--new-token"],
    );
    assert_ne!(server.token(), token);
    server.stop();
    if quiet_testing::is_root() {
        let far = Command::new(PROGRAM).args(["serve", "--listen", "0.0.0.0:0"]).output().unwrap();
        assert_eq!(far.status.code(), Some(2));
        assert!(text(&far).contains("other machines as root"), "{}", text(&far));
        let near =
            Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
        assert_eq!(near.status.code(), Some(2));
        assert!(text(&near).contains("--as-root"), "{}", text(&near));
    }
}

/// Lets this process have so many descriptors, where it may; how many it has.
fn descriptors(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(wanted).min(wanted).max(limit.current.unwrap_or(wanted));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(wanted)
}

/// An engine on the card that does not exist; and its blocks, missed periods and xruns whenever it is asked.
fn play(dir: &Path) -> (Ended, impl Fn() -> (u64, u64, u64)) {
    let strip = dir.join("strip.toml");
    fs::write(&strip, "[strip]\nname = \"plain\"\nchannels = 1\n[[stage]]\nkind = \"gain\"\n")
        .unwrap();
    let socket = dir.join("attacked.sock");
    let control = ["--control", socket.to_str().unwrap()];
    let child = faces::play(PROGRAM, dir, &strip, &control);
    let at = socket.clone();
    soon("it plays", || std::os::unix::net::UnixStream::connect(&at).is_ok());
    let asked = move || {
        let mut line = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        line.set_read_timeout(Some(machine::PATIENCE)).unwrap();
        line.write_all(b"{\"do\":\"stats\"}\n").unwrap();
        let mut answer = String::new();
        BufReader::new(line).read_line(&mut answer).unwrap();
        let told: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let number = |name: &str| told[name].as_u64().unwrap();
        (number("blocks"), number("missed"), number("xruns"))
    };
    (child, asked)
}

#[test]
fn ten_thousand_connections_that_ask_nothing_cost_no_memory() {
    if quiet_testing::left_out("30 s") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(PROGRAM, (dir.path(), dir.path()), &["--listen", "127.0.0.1:0"]);
    let resident = || -> u64 {
        let status = read(&format!("/proc/{}/status", server.process.0.id()));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    assert_eq!(server.ask("GET", "/", "").0, 200);
    let (playing, plays) = play(dir.path());
    let (first, before) = (plays(), resident());
    std::thread::sleep(Duration::from_secs(2));
    let quiet = plays();
    let most = descriptors(10_300).saturating_sub(200).min(10_000);
    let (mut half, mut came) = (Vec::new(), 0);
    for n in 0..10_000u64 {
        let Ok(mut stream) = TcpStream::connect(server.at()) else { continue };
        let _ = stream.write_all(b"GET /api/v1/live HTTP/1.1\r\nHost: ");
        half.push(stream);
        came += 1;
        // Where fewer may be held, the oldest ones go: the server has let go of them long ago.
        if half.len() as u64 > most {
            half.remove(0);
        }
        if n % 2500 == 2499 {
            assert_eq!(server.ask("GET", "/icon.svg", "").0, 200, "after {n}");
        }
    }
    assert!(came > 5_000, "only {came} connections came");
    assert_eq!(server.ask("GET", "/api/v1/live", "").0, 200);
    let more = resident().saturating_sub(before);
    assert!(more < 32 << 10, "{more} KiB more than before");
    let held = fs::read_dir(format!("/proc/{}/fd", server.process.0.id())).unwrap().count();
    assert!(held < 300, "{held} descriptors are held");
    // The engine plays on. How many periods it lost before and meanwhile depends on this machine's load: it is told.
    let attacked = plays();
    eprintln!(
        "blocks, missed, xruns: {first:?}, after 2 s {quiet:?}, after the connections {attacked:?}"
    );
    assert!(quiet.0 > first.0 && attacked.0 > quiet.0);
    drop(half);
    drop(playing);
    server.stop();
}

/// What a program of the system says.
fn said(program: &str, args: &[&str]) -> (bool, String) {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    (done.status.success(), text(&done))
}

#[test]
fn an_encrypted_page_is_known_by_its_certificate_and_keeps_it() {
    for program in ["curl", "openssl"] {
        if quiet_testing::program(program).is_none() {
            return skip(Why::Program(program, program));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let tls = ["--listen", "127.0.0.1:0", "--tls"];
    let server = Server::start(PROGRAM, (dir.path(), dir.path()), &tls);
    assert!(server.address.starts_with("https://"), "{}", server.address);
    let certificate = dir.path().join("own/quietcores/tls/certificate.pem");
    let kept = fs::read_to_string(&certificate).unwrap();
    let certificate = certificate.to_str().unwrap();
    let live = format!("https://{}/api/v1/live", server.at());
    let bearer = format!("Authorization: Bearer {}", server.token());
    let ask = |more: &[&str]| said("curl", &[&["-sS", "--max-time", "60"][..], more].concat());
    // Another program takes it by this certificate alone, and no other.
    let (taken, answer) = ask(&["--cacert", certificate, "-H", &bearer, &live]);
    assert!(taken && answer.contains("quietcores.live/1"), "{answer}");
    let (taken, answer) = ask(&[&live]);
    assert!(!taken, "taken without the certificate: {answer}");
    // The page's own origin has this scheme.
    let deed = |origin: &str| {
        let origin = format!("Origin: {origin}://{}", server.at());
        let confirm = format!("https://{}/api/v1/confirm", server.at());
        let more = ["-w", "%{http_code}", "-X", "POST", "-H", "Content-Type: application/json"];
        let rest = ["--cacert", certificate, "-H", &bearer, "-H", &origin, &confirm];
        ask(&[&more[..], &rest[..]].concat()).1
    };
    assert!(deed("http").ends_with("403") && !deed("https").ends_with("403"));
    let (_, head) = ask(&["--cacert", certificate, "-o", "/dev/null", "-D", "-", &server.address]);
    assert!(head.to_lowercase().contains("samesite=strict; secure"), "{head}");
    // Who speaks without encryption, or says nothing, holds nobody up.
    let mut plain = TcpStream::connect(server.at()).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(ask(&["--cacert", certificate, "-H", &bearer, &live]).0);
    server.stop();
    // The fingerprint is the one that openssl reads, and stays.
    let printed = Command::new(PROGRAM)
        .args(["serve", "--as-root", "--listen", "127.0.0.1:0", "--tls", "--qr"])
        .env("XDG_STATE_HOME", dir.path().join("own"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = printed;
    let mut lines = BufReader::new(printed.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("fingerprint")).unwrap();
    printed.kill().unwrap();
    printed.wait().unwrap();
    let (_, read) =
        said("openssl", &["x509", "-in", certificate, "-noout", "-fingerprint", "-sha256"]);
    let read = read.trim().split('=').nth(1).unwrap();
    assert!(line.ends_with(read), "{line}: {read}");
    assert_eq!(fs::read_to_string(certificate).unwrap(), kept);
    // A name that it is not for: made anew, for the names of before too.
    let names = ["--name", "127.0.0.1", "--name", "box.example"];
    let named = [&tls[..], &names[..]].concat();
    Server::start(PROGRAM, (dir.path(), dir.path()), &named).stop();
    let (_, names) =
        said("openssl", &["x509", "-in", certificate, "-noout", "-ext", "subjectAltName"]);
    assert!(names.contains("DNS:box.example") && names.contains("DNS:localhost"), "{names}");
    let newer = fs::read_to_string(certificate).unwrap();
    assert_ne!(newer, kept);
    Server::start(PROGRAM, (dir.path(), dir.path()), &tls).stop();
    assert_eq!(fs::read_to_string(certificate).unwrap(), newer);
    // Killed while it was made anew: the key is another one's, and it starts all the same.
    fs::remove_file(dir.path().join("own/quietcores/tls/names")).unwrap();
    fs::write(certificate, &kept).unwrap();
    Server::start(PROGRAM, (dir.path(), dir.path()), &tls).stop();
    assert_ne!(fs::read_to_string(certificate).unwrap(), kept);
    let key = fs::metadata(dir.path().join("own/quietcores/tls")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o077, 0);
    // Several that begin at once, each by a name of its own: each runs, and what is kept is of one making, for all of them.
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..4).map(|n| format!("box-{n}.example")).collect();
    std::thread::scope(|all| {
        for name in &names {
            let named = [&tls[..], &["--name", "127.0.0.1", "--name", name]].concat();
            let dir = dir.path();
            all.spawn(move || Server::start(PROGRAM, (dir, dir), &named).stop());
        }
    });
    let certificate = dir.path().join("own/quietcores/tls/certificate.pem");
    let kept = fs::read_to_string(&certificate).unwrap();
    let named: Vec<&str> = names.iter().flat_map(|name| ["--name", name.as_str()]).collect();
    let named = [&tls[..], &["--name", "127.0.0.1"], &named].concat();
    Server::start(PROGRAM, (dir.path(), dir.path()), &named).stop();
    assert_eq!(fs::read_to_string(&certificate).unwrap(), kept);
}

#[test]
fn a_socket_that_listens_already_is_served() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(PROGRAM)
        .args(["serve", "--as-root", "--activated", "--state"])
        .arg(dir.path())
        .arg("--store")
        .arg(dir.path().join("store"))
        .env("XDG_RUNTIME_DIR", dir.path())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let server = Server::of(child);
    assert_eq!(server.at(), at.to_string());
    assert_eq!(server.ask("GET", "/api/v1/live", "").0, 200);
    server.stop();
    let none = Command::new(PROGRAM)
        .args(["serve", "--as-root", "--activated"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none).contains("no socket"), "{}", text(&none));
}
