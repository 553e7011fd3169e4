//! `serve`: the live pages.

use super::plan::Wished;
use crate::{
    face,
    hands::{MachineHands, status_reader},
    keep, user,
};
use anyhow::{Context, anyhow, bail};
use qrcode::render::unicode::Dense1x2;
use quiet_linux::{
    CommandLines, Options, Root,
    files::{self, Replace},
    glance,
};
use quiet_live::{Jobs, LiveOptions, Stream};
use quiet_shield::DEFAULT_STATE;
use quiet_types::live::Serving;
use quiet_web::{DoorRules, Doors, HttpLimits, Keys, LocalName, MadeCertificate, TlsIdentity};
use std::{
    fs::{DirBuilder, File},
    io::Read,
    net::{SocketAddr, TcpListener},
    os::{fd::AsFd, unix::fs::DirBuilderExt},
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
  quietcores serve --listen 192.168.1.5:7070 --name studio.local --tls --qr
                                                 from a phone too, encrypted; everything needs the token then
  curl http://127.0.0.1:7070/api/v1/live         the same as JSON; docs/schema/openapi.json describes all
On loopback everybody on this machine may look, and whoever has the token may act. It acts with the rights of
whoever runs it: run it as a user, and what needs rights is asked of quietcored. Without --tls it is not encrypted:
beyond loopback use a network that you trust then, or `ssh -L 7070:localhost:7070 BOX` and no --listen.")]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    /// Address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// A name by which it may be called as well; every other one is refused (DNS rebinding)
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Say this name on the network by multicast DNS, NAME.local, to who asks for it; with --listen and an address of this machine. Where
    /// somebody has it, it is NAME-2.local
    #[arg(long, value_name = "NAME")]
    mdns: Option<String>,
    /// Moments a second, 0.2 to 10
    #[arg(long, value_name = "HZ", default_value_t = 4.0)]
    rate: f64,
    /// Encrypt, with a certificate that is made once and kept; its fingerprint is printed
    #[arg(long)]
    tls: bool,
    /// Encrypt with a certificate of your own (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Draw the address with its token as a QR code, for a phone's camera
    #[arg(long, conflicts_with = "json")]
    qr: bool,
    /// Standard input is a socket that listens already (StandardInput=socket of a systemd unit), in place of --listen
    #[arg(long, conflicts_with = "listen")]
    activated: bool,
    /// Serve although this is root: on loopback alone, and whoever has the token acts as root
    #[arg(long)]
    as_root: bool,
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

/// Beyond loopback nothing is done as root, and on loopback only where it is asked for.
fn allowed(args: &Args, at: SocketAddr) -> anyhow::Result<()> {
    let is_far = !at.ip().is_loopback();
    if is_far && face::is_root() {
        bail!(
            "cannot serve other machines as root: what a page asks for would be done with all rights; \
             run it as a user, and let quietcored do what needs rights (sudo quietcores approve CHAIN)"
        );
    }
    if face::is_root() && !args.as_root {
        bail!(
            "cannot serve as root: whoever has the token would act with all rights; run it as a user, and \
             let quietcored do what needs rights (sudo quietcores approve CHAIN), or add --as-root"
        );
    }
    if is_far && at.ip().is_unspecified() && args.name.is_empty() {
        bail!("cannot tell by which name {at} is called: give the address itself, or --name NAME");
    }
    Ok(())
}

/// Where it listens: a socket of its own, or the one that it was started with.
fn listener(args: &Args) -> anyhow::Result<TcpListener> {
    if args.activated {
        let handed = || -> std::io::Result<TcpListener> {
            let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
            let listener = TcpListener::from(socket);
            listener.local_addr()?;
            Ok(listener)
        };
        return handed().context("standard input is no socket that listens");
    }
    TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen at {}; give --listen another one", args.listen))
}

/// Names of before that a certificate is made for again.
const MOST_NAMES: usize = 32;

/// What it shows to whoever connects, where it is to be encrypted.
fn identity(
    args: &Args,
    at: SocketAddr,
    name: Option<&str>,
) -> anyhow::Result<Option<TlsIdentity>> {
    let read = |path: &Path| {
        files::read(path, 1 << 20).with_context(|| format!("cannot read {}", path.display()))
    };
    let made = |certificate: &[u8], key: &[u8]| {
        TlsIdentity::new(certificate, key).map_err(|why| anyhow!(why)).map(Some)
    };
    if let (Some(certificate), Some(key)) = (&args.certificate, &args.key) {
        return made(&read(certificate)?, &read(key)?);
    }
    if !args.tls {
        return Ok(None);
    }
    let dir = user::state_dir()
        .context("there is no folder to keep a certificate in: HOME is not set")?;
    let dir = dir.join("tls");
    let cannot = || format!("cannot keep a certificate in {}", dir.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).with_context(cannot)?;
    // One at a time: of two that begin together the second reads what the first made.
    let lock = File::options().create(true).append(true).open(dir.join("lock"));
    let lock = lock.with_context(cannot)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).with_context(cannot)?;
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    let mut names: Vec<String> = name.map(str::to_owned).into_iter().collect();
    names.extend(args.name.clone());
    names.extend([at.ip().to_string(), "localhost".to_owned(), "127.0.0.1".to_owned(), host()]);
    names.retain(|name| name.is_ascii() && !name.is_empty());
    // What the kept one was made for, a line each.
    let made_for = dir.join("names");
    let before = files::read_text(&made_for, 64 << 10).unwrap_or_default();
    let new = names.iter().find(|name| !before.lines().any(|line| line == *name)).cloned();
    if certificate.exists() && key.exists() {
        let Some(new) = new else { return made(&read(&certificate)?, &read(&key)?) };
        face::say(&format!(
            "quietcores: the certificate is made anew, since the kept one is not for {new}: its fingerprint is another one"
        ));
        names.extend(before.lines().take(MOST_NAMES).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    let fresh = MadeCertificate::new(&names).map_err(|why| anyhow!(why))?;
    // Until all three are whole there are no names, and whoever is killed here makes them anew at the next start.
    let _ = std::fs::remove_file(&made_for);
    let keep = |path: &Path, text: &str| files::write_whole(path, text.as_bytes(), Replace::Always);
    keep(&key, &fresh.key).with_context(cannot)?;
    keep(&certificate, &fresh.certificate).with_context(cannot)?;
    keep(&made_for, &names.join("\n")).with_context(cannot)?;
    made(fresh.certificate.as_bytes(), fresh.key.as_bytes())
}

/// The address as a QR code of the terminal's characters.
fn qr(address: &str) -> anyhow::Result<String> {
    let code = qrcode::QrCode::new(address).context("cannot draw this as a QR code")?;
    // Dark on light, as a camera wants it, where a terminal's letters are light.
    Ok(match face::unicode() {
        true => code
            .render::<Dense1x2>()
            .dark_color(Dense1x2::Light)
            .light_color(Dense1x2::Dark)
            .build(),
        false => {
            code.render::<char>().light_color('#').dark_color(' ').module_dimensions(2, 1).build()
        }
    })
}

/// Says where it listens, and to whom.
fn announce(
    args: &Args,
    (at, name): (SocketAddr, Option<&str>),
    rules: &DoorRules,
) -> anyhow::Result<()> {
    if face::is_root() {
        face::say("quietcores: this runs as root: whoever has the token acts as root");
    }
    let scheme = match &rules.tls {
        Some(tls) => {
            face::say(&format!("the certificate's fingerprint (SHA-256): {}", tls.fingerprint()));
            "https"
        }
        None => "http",
    };
    if rules.closed && rules.tls.is_none() {
        face::say("quietcores: this is not encrypted: whoever hears the network has the token");
    }
    let shown = name.map_or_else(|| at.to_string(), |name| format!("{name}:{}", at.port()));
    let token = &rules.keys.token;
    if args.json {
        return face::print_json(&Serving::new(&format!("{scheme}://{shown}/"), token));
    }
    let address = format!("{scheme}://{shown}/?token={token}");
    face::print(&format!("{address}\n"))?;
    if args.qr {
        face::print(&format!("{}\n", qr(&address)?))?;
    }
    Ok(())
}

/// The name on the network, where one is asked for: while it is said it is one of the server's names.
fn local_name(args: &Args, at: SocketAddr) -> anyhow::Result<Option<LocalName>> {
    let Some(label) = &args.mdns else { return Ok(None) };
    if at.ip().is_unspecified() {
        bail!(
            "cannot say a name for every address: give --listen the one of the interface on which it is to be heard"
        );
    }
    let tell = Box::new(|news: &str| face::say(&format!("quietcores: {news}")));
    let name = LocalName::take(label, at, tell).map_err(|why| anyhow!(why))?;
    face::say(&format!("{} is said by multicast DNS on the interface of {}", name.name(), at.ip()));
    Ok(Some(name))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !args.activated {
        allowed(&args, args.listen)?;
    }
    let stop = face::interrupt()?;
    let private = quiet_engine::control::private_dir();
    let keys = keys(private.as_deref().ok(), args.new_token)?;
    let listener = listener(&args)?;
    let at = listener.local_addr().context("cannot tell where it listens")?;
    allowed(&args, at)?;
    let said = local_name(&args, at)?;
    let options = LiveOptions { engines: private.ok(), ..LiveOptions::at(args.rate) };
    let root = Root::system().context("cannot look at the machine")?;
    let stream = Stream::start(root, options.clone(), status_reader(&args.state))
        .context("cannot begin to look at the machine")?;
    let machine = || {
        let options = Options { command_lines: CommandLines::None };
        let root = Root::system().map_err(|e| e.to_string())?;
        glance(&root, options).map_err(|e| e.to_string())
    };
    let program = crate::work::program(&args.wish, &args.state, args.store.as_deref())?;
    let doors = Doors {
        watch: stream.watch(),
        hands: Arc::new(MachineHands::new(&args.wish, &args.state)?),
        engines: options.engines,
        sounds: user::sounds_dir(),
        store: keep::store(args.store.as_deref())?,
        jobs: Jobs::new(program.clone()),
        program,
        machine: Box::new(machine),
        host: host(),
    };
    let name = said.as_ref().map(LocalName::name).or_else(|| args.name.first().cloned());
    let tls = identity(&args, at, name.as_deref())?;
    let said = said.as_ref().map(LocalName::said);
    let rules = DoorRules { tls, said, ..DoorRules::new(at, &args.name, keys) };
    announce(&args, (at, name.as_deref()), &rules)?;
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
    let mut source = File::open("/dev/urandom").context("there are no random numbers")?;
    source.read_exact(&mut bytes).context("there are no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
