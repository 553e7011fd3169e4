//! `serve`: the live pages.

use super::plan::Wished;
use crate::{
    face,
    hands::{MachineHands, status_reader},
    keep, user,
};
use anyhow::{Context, bail};
use quiet_linux::{
    CommandLines, Options, Root,
    files::{self, Replace},
    glance,
};
use quiet_live::{LiveOptions, Stream};
use quiet_shield::DEFAULT_STATE;
use quiet_types::live::Serving;
use quiet_web::{DoorRules, Doors, HttpLimits, Keys};
use std::{
    io::Read,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

/// Show this machine on a page: live, with its shield and its runs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores serve                               prints an address with a token; open it in a browser
  quietcores serve room                          Apply on the page applies this approved chain
  quietcores serve --listen 192.168.1.5:7070 --name studio.local
                                                 from a phone too; everything needs the token then
  curl http://127.0.0.1:7070/api/v1/live         the same as JSON; docs/schema/openapi.json describes all
On loopback everybody on this machine may look, and whoever has the token may act. It acts with the rights of
whoever runs it: run it as a user, and what needs rights is asked of quietcored. It is not encrypted: beyond
loopback use a network that you trust, or `ssh -L 7070:localhost:7070 BOX` and no --listen.")]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    /// Address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// A name by which it may be called as well; every other one is refused (DNS rebinding)
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Moments a second, 0.2 to 10
    #[arg(long, value_name = "HZ", default_value_t = 4.0)]
    rate: f64,
    /// Print where it listens as JSON: its address, and the token apart
    #[arg(long)]
    json: bool,
    /// Make a new token; whoever has the old one is out
    #[arg(long)]
    new_token: bool,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let is_far = !args.listen.ip().is_loopback();
    if is_far && face::is_root() {
        bail!(
            "cannot serve other machines as root: what a page asks for would be done with all rights; \
             run it as a user, and let quietcored do what needs rights (sudo quietcores approve CHAIN)"
        );
    }
    if is_far && args.listen.ip().is_unspecified() && args.name.is_empty() {
        bail!(
            "cannot tell by which name {} is called: give the address itself, or --name NAME",
            args.listen
        );
    }
    let stop = face::interrupt()?;
    let private = quiet_engine::control::private_dir();
    let keys = keys(private.as_deref().ok(), args.new_token)?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen at {}; give --listen another one", args.listen))?;
    let at = listener.local_addr().context("cannot tell where it listens")?;
    let options = LiveOptions { engines: private.ok(), ..LiveOptions::at(args.rate) };
    let root = Root::system().context("cannot look at the machine")?;
    let stream = Stream::start(root, options.clone(), status_reader(&args.state))
        .context("cannot begin to look at the machine")?;
    let machine = || {
        let options = Options { command_lines: CommandLines::None };
        let root = Root::system().map_err(|e| e.to_string())?;
        glance(&root, options).map_err(|e| e.to_string())
    };
    let doors = Doors {
        watch: stream.watch(),
        hands: Arc::new(MachineHands::new(&args.wish, &args.state)?),
        engines: options.engines,
        sounds: user::sounds_dir(),
        store: keep::store(args.store.as_deref())?,
        machine: Box::new(machine),
        host: host(),
    };
    let shown = args.name.first().map_or_else(|| at.to_string(), |n| format!("{n}:{}", at.port()));
    if face::is_root() {
        face::say("quietcores: this runs as root: whoever has the token acts as root");
    }
    if is_far {
        face::say("quietcores: this is not encrypted: whoever hears the network has the token");
    }
    match args.json {
        true => face::print_json(&Serving::new(&format!("http://{shown}/"), &keys.token))?,
        false => face::print(&format!("http://{shown}/?token={}\n", keys.token))?,
    }
    let rules = DoorRules::new(at, &args.name, keys);
    quiet_web::run(listener, (doors, rules), HttpLimits::default(), &stop)
        .context("cannot serve")?;
    Ok(ExitCode::SUCCESS)
}

/// The machine's name.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    quiet_live::clean(name.trim(), 64)
}

/// The file beside the control sockets that keeps the secrets, so that a page lives through a restart.
const FILE: &str = "serve.keys";

/// As they were kept, or new.
fn keys(dir: Option<&Path>, new: bool) -> anyhow::Result<Keys> {
    let path = dir.map(|dir| dir.join(FILE));
    let kept = path.as_deref().filter(|_| !new).and_then(|path| files::read_text(path, 1024).ok());
    let is_key = |word: &&str| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words: Vec<String> =
        kept.iter().flat_map(|text| text.lines()).filter(is_key).map(str::to_owned).collect();
    if let Ok([token, session, csrf]) = <[String; 3]>::try_from(words) {
        return Ok(Keys { token, session, csrf });
    }
    let keys = Keys { token: secret()?, session: secret()?, csrf: secret()? };
    if let Some(path) = path {
        let text = format!("{}\n{}\n{}\n", keys.token, keys.session, keys.csrf);
        // The folder is nobody else's.
        files::write_whole(&path, text.as_bytes(), Replace::Always)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(keys)
}

/// 128 random bits.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    let mut source = std::fs::File::open("/dev/urandom").context("there are no random numbers")?;
    source.read_exact(&mut bytes).context("there are no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
