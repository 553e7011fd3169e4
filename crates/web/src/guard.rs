//! Who may: decided from the head of a request. Pure.

use crate::{mdns::SaidName, tls::TlsIdentity};
use axum::http::{HeaderMap, Method, StatusCode, header};
use std::{net::SocketAddr, sync::PoisonError};

/// The header that a page's own script sends with what changes something.
pub(crate) const CSRF: &str = "x-quietcores-csrf";
/// The cookie's name.
pub(crate) const COOKIE: &str = "quietcores";

/// Secrets of a server, each 128 random bits or more as hexadecimal digits.
#[derive(Clone)]
pub struct Keys {
    /// Printed for the user: lets in.
    pub token: String,
    /// What a browser holds that was let in.
    pub session: String,
    /// What only the pages know.
    pub csrf: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// What is asked of every request.
#[derive(Clone, Debug)]
pub struct DoorRules {
    /// `host:port` by which it may be called; nothing else is answered (DNS rebinding).
    pub hosts: Vec<String>,
    /// The name that is said on the network, which may become another one; with the port it is a host, too.
    pub said: Option<SaidName>,
    /// Its port.
    pub port: u16,
    /// Whether looking needs the token too: it does beyond loopback.
    pub closed: bool,
    /// The secrets.
    pub keys: Keys,
    /// Encrypted, and with what certificate.
    pub tls: Option<TlsIdentity>,
}

impl DoorRules {
    /// For a server at `at`, which may be called by `names` as well.
    pub fn new(at: SocketAddr, names: &[String], keys: Keys) -> DoorRules {
        let hosts = host_names(at, names);
        let closed = !at.ip().is_loopback();
        DoorRules { hosts, said: None, port: at.port(), closed, keys, tls: None }
    }

    /// Whether it is one of the server's names, with its port.
    fn is_host(&self, host: &str) -> bool {
        let said = self.said.as_ref().map(|said| {
            let name = said.lock().unwrap_or_else(PoisonError::into_inner).to_ascii_lowercase();
            format!("{name}:{}", self.port)
        });
        let said = said.filter(|said| !said.starts_with(':'));
        let is_said =
            |said: String| host == said || usual(&said).is_some_and(|short| host == short);
        self.hosts.iter().any(|known| known == host) || said.is_some_and(is_said)
    }
}

/// A browser leaves out the port that its scheme has by itself.
fn usual(host: &str) -> Option<String> {
    host.strip_suffix(":80").or_else(|| host.strip_suffix(":443")).map(str::to_owned)
}

/// `host:port` by which a server at `at` may be called, these names included.
pub fn host_names(at: SocketAddr, names: &[String]) -> Vec<String> {
    let port = at.port();
    let mut hosts = vec![at.to_string()];
    if at.ip().is_loopback() {
        hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}")));
    }
    hosts.extend(names.iter().map(|name| format!("{}:{port}", name.to_ascii_lowercase())));
    hosts.extend(hosts.clone().iter().filter_map(|host| usual(host)));
    hosts
}

/// What whoever asks may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look.
    Look,
    /// Look and act.
    Act,
}

/// Why a request is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turned {
    /// As HTTP has it.
    pub status: StatusCode,
    /// In a sentence.
    pub why: &'static str,
    /// A token was given and is wrong.
    pub guessed: bool,
}

fn turned(status: StatusCode, why: &'static str) -> Turned {
    Turned { status, why, guessed: false }
}

/// Compares without telling by its time where they differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    let differs = a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    !b.is_empty() && a.len() == b.len() && differs == 0
}

/// Whether a token is the server's.
pub(crate) fn is_token(rules: &DoorRules, token: &str) -> bool {
    same(token, &rules.keys.token)
}

/// Decides what a request may do; `query_token` is a token that stands in its address.
///
/// # Errors
/// When it is turned away.
pub fn check(
    rules: &DoorRules,
    method: &Method,
    headers: &HeaderMap,
    query_token: Option<&str>,
) -> Result<Access, Turned> {
    let text = |name: &str| {
        let mut all = headers.get_all(name).iter();
        match (all.next(), all.next()) {
            (Some(one), None) => one.to_str().ok(),
            _ => None,
        }
    };
    let host = text(header::HOST.as_str()).unwrap_or_default().to_ascii_lowercase();
    if !rules.is_host(&host) {
        let why = "this server does not go by that name; call it as `quietcores serve` printed it, or start it with --name";
        return Err(turned(StatusCode::MISDIRECTED_REQUEST, why));
    }
    let bearer = text(header::AUTHORIZATION.as_str())
        .and_then(|told| told.strip_prefix("Bearer ").map(str::trim));
    let given = bearer.or(query_token);
    if given.is_some_and(|token| !is_token(rules, token)) {
        let why = "the token is not this server's; `quietcores serve` printed the right one";
        return Err(Turned { guessed: true, ..turned(StatusCode::UNAUTHORIZED, why) });
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|c| c.to_str().ok());
    let session = cookies
        .flat_map(|all| all.split(';'))
        .filter_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='))
        .any(|value| same(value, &rules.keys.session));
    let is_known = given.is_some() || session;
    if rules.closed && !is_known {
        let why = "this server is reached from other machines and answers only with its token: open the address that `quietcores serve` printed";
        return Err(turned(StatusCode::UNAUTHORIZED, why));
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(if is_known { Access::Act } else { Access::Look });
    }
    // What follows changes something.
    if !is_known {
        let why = "to change something give the token: open the address that `quietcores serve` printed, or send `Authorization: Bearer TOKEN`";
        return Err(turned(StatusCode::UNAUTHORIZED, why));
    }
    // Neither of them is sent to another server without being asked first (CORS).
    let kinds = ["application/json", "application/octet-stream"];
    let kind = text(header::CONTENT_TYPE.as_str()).and_then(|kind| kind.split(';').next());
    if !kind.is_some_and(|kind| kinds.contains(&kind.trim())) {
        let why = "send JSON: `Content-Type: application/json`";
        return Err(turned(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let scheme = if rules.tls.is_some() { "https://" } else { "http://" };
    let own = |origin: &str| origin.strip_prefix(scheme).is_some_and(|from| from == host);
    let origin = headers.get(header::ORIGIN).map(|o| o.to_str().unwrap_or("?").to_owned());
    let why =
        "this came from another page; what changes the machine is taken from this server's own";
    match origin {
        Some(origin) if !own(&origin) => return Err(turned(StatusCode::FORBIDDEN, why)),
        // A browser sends it with every POST. A script has its bearer token.
        None if bearer.is_none() => return Err(turned(StatusCode::FORBIDDEN, why)),
        _ => {}
    }
    if bearer.is_none() && !text(CSRF).is_some_and(|csrf| same(csrf, &rules.keys.csrf)) {
        return Err(turned(
            StatusCode::FORBIDDEN,
            "the page is older than the server: load it again",
        ));
    }
    Ok(Access::Act)
}
