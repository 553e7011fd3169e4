//! Who may: polkit decides; where there is none, the members of one group may do what polkit's shipped rules let them do.

use crate::{Error, caller::Caller};
use quiet_linux::{Root, rights};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use zbus::{Connection, fdo, names::BusName, proxy, proxy::CacheProperties, wire::Variant};

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// To see chains, plans and the shield.
    Look,
    /// To put the shield of an approved chain up, and to confirm it.
    Apply,
    /// To put back what one put up oneself.
    Revert,
    /// To change, to put back or to confirm what somebody else put up.
    RevertAny,
    /// To let a thread of one's own into the shield.
    Admit,
}

impl Permission {
    /// Its name at polkit.
    pub const fn id(self) -> &'static str {
        match self {
            Permission::Look => "org.quietcores1.look",
            Permission::Apply => "org.quietcores1.apply",
            Permission::Revert => "org.quietcores1.revert",
            Permission::RevertAny => "org.quietcores1.revert-any",
            Permission::Admit => "org.quietcores1.admit",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Permission::Look => "see the shield",
            Permission::Apply => "apply an approved chain",
            Permission::Revert => "put the machine back",
            Permission::RevertAny => "change, put back or confirm a shield that is not yours",
            Permission::Admit => "let a thread into the shield",
        }
    }
}

/// Who is asked without a dialogue answers at once: for who only looks he has to.
const AT_ONCE: Duration = Duration::from_millis(900);
/// On a small board under load polkit's rules take seconds.
const SOON: Duration = Duration::from_secs(5);
/// Somebody may sit before a dialogue of polkit's, for a while.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is looked whether who is asked is still there.
const HERE: Duration = Duration::from_millis(500);

/// An answer that took as long may come after the caller has gone.
const LATE: Duration = Duration::from_millis(20);

/// How far the question goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// By polkit's rules alone.
    Quietly,
    /// The user may be asked for a password.
    ByDialogue,
}

/// What was answered to who may do it.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// He may.
    May,
    /// He may not, with the sentence for him.
    MayNot(Error),
    /// He may with a password; the sentence is for who is not asked for one.
    MayWithPassword(Error),
}

/// Questions so far: each has a name of its own.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// How it is decided.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Whose members may where there is no polkit.
    group: String,
}

#[proxy(
    interface = "org.freedesktop.PolicyKit1.Authority",
    default_service = "org.freedesktop.PolicyKit1",
    default_path = "/org/freedesktop/PolicyKit1/Authority"
)]
trait Polkit {
    /// `flags`: 1 lets the user be asked for a password. Answers (allowed, could be with a password, details).
    fn check_authorization(
        &self,
        subject: &(&str, HashMap<&str, Variant<'_>>),
        action: &str,
        details: HashMap<&str, &str>,
        flags: u32,
        cancellation: &str,
    ) -> zbus::Result<(bool, bool, HashMap<String, String>)>;

    fn cancel_check_authorization(&self, cancellation: &str) -> zbus::Result<()>;
}

impl Authority {
    /// Where there is no polkit, the members of `group` may.
    pub fn new(group: &str) -> Authority {
        Authority { group: group.to_owned() }
    }

    /// Whether `caller` may; root may.
    ///
    /// # Errors
    /// When polkit does not answer in time: try again.
    pub(crate) async fn ask(
        &self,
        bus: &Connection,
        caller: &Caller,
        action: Permission,
        manner: Manner,
    ) -> Result<Verdict, Error> {
        if caller.uid == 0 {
            return Ok(Verdict::May);
        }
        Ok(match self.polkit(bus, caller, action, manner).await? {
            Ok((true, _)) => Verdict::May,
            Ok((false, with_password)) => {
                let sentence = self.refused(caller, action, "polkit refuses it");
                match with_password && manner == Manner::Quietly {
                    true => Verdict::MayWithPassword(sentence),
                    false => Verdict::MayNot(sentence),
                }
            }
            Err(error) if is_absent(&error) => {
                let of_group = action != Permission::RevertAny && self.in_group(caller);
                if action == Permission::Look || of_group {
                    Verdict::May
                } else {
                    let why = match action {
                        Permission::RevertAny => "there is no polkit here".to_owned(),
                        _ => format!(
                            "there is no polkit here, and you are not in the group `{}`",
                            self.group
                        ),
                    };
                    Verdict::MayNot(self.refused(caller, action, &why))
                }
            }
            Err(error) => {
                let why = format!("polkit does not answer: {error}");
                Verdict::MayNot(self.refused(caller, action, &why))
            }
        })
    }

    /// Polkit's answer: whether he may, and whether he may with a password.
    async fn polkit(
        &self,
        bus: &Connection,
        caller: &Caller,
        action: Permission,
        manner: Manner,
    ) -> Result<zbus::Result<(bool, bool)>, Error> {
        let polkit =
            PolkitProxy::builder(bus).cache_properties(CacheProperties::No).build().await?;
        let subject =
            ("system-bus-name", HashMap::from([("name", Variant::from(caller.name.as_str()))]));
        let (flags, patience) = match manner {
            Manner::Quietly if action == Permission::Look => (0, AT_ONCE),
            Manner::Quietly => (0, SOON),
            Manner::ByDialogue => (1, PATIENCE),
        };
        // So that the dialogue goes with the question.
        let id = format!("{}-{}", caller.name, ASKED.fetch_add(1, Ordering::Relaxed));
        let details = HashMap::new();
        let since = Instant::now();
        let asked = polkit.check_authorization(&subject, action.id(), details, flags, &id);
        let why = tokio::select! {
            answer = asked => {
                // A password may be typed for somebody who has gone a moment ago: for him nothing is done.
                if since.elapsed() >= LATE && !is_here(bus, caller).await {
                    return Err(Error::Busy("who called has ended".into()));
                }
                return Ok(answer.map(|(may, with_password, _)| (may, with_password)));
            }
            () = tokio::time::sleep(patience) => {
                format!("polkit has not answered within {patience:?}: try again")
            }
            () = gone(bus, caller), if manner == Manner::ByDialogue => {
                "who called has ended".to_owned()
            }
        };
        let cancelled = polkit.cancel_check_authorization(&id);
        let _ = tokio::time::timeout(Duration::from_millis(50), cancelled).await;
        Err(Error::Busy(why))
    }

    /// By the groups that the caller's process is in, where the bus says them, else by the machine's own files.
    fn in_group(&self, caller: &Caller) -> bool {
        let groups = caller.groups.as_deref();
        Root::system().is_ok_and(|root| rights::in_group(&root, caller.uid, groups, &self.group))
    }

    fn refused(&self, caller: &Caller, action: Permission, why: &str) -> Error {
        let (uid, what, id, group) = (caller.uid, action.what(), action.id(), &self.group);
        let who = match action {
            Permission::RevertAny => format!(
                "Root may (sudo quietcores revert or confirm), and whom polkit's rules let do {id}"
            ),
            _ => format!(
                "Members of the group `{group}` may (sudo usermod -aG {group} NAME, then log in again), and whom polkit's rules let \
                 do {id}"
            ),
        };
        Error::NotAllowed(format!("user {uid} may not {what}: {why}. {who}"))
    }
}

/// Comes when the caller has left the bus: nobody sits before a dialogue then.
async fn gone(bus: &Connection, caller: &Caller) {
    while is_here(bus, caller).await {
        tokio::time::sleep(HERE).await;
    }
}

/// Whether the caller is on the bus still; where that does not say, it is believed.
async fn is_here(bus: &Connection, caller: &Caller) -> bool {
    let Ok(everybody) = fdo::DBusProxy::new(bus).await else { return true };
    let Ok(name) = BusName::try_from(caller.name.as_str()) else { return true };
    !matches!(everybody.name_has_owner(name).await, Ok(false))
}

/// Nobody owns polkit's name, and nobody can be started for it.
fn is_absent(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::FDO(error) => {
            matches!(**error, fdo::Error::ServiceUnknown(_) | fdo::Error::NameHasNoOwner(_))
        }
        zbus::Error::MethodError(name, ..) => {
            ["ServiceUnknown", "NameHasNoOwner"].iter().any(|end| name.as_str().ends_with(end))
        }
        _ => false,
    }
}
