//! Who may: polkit decides; where there is none, the members of one group may do what polkit's shipped rules let them do.

use crate::{Error, caller::Caller};
use quiet_linux::{Root, rights};
use std::{collections::HashMap, time::Duration};
use zbus::{Connection, fdo, proxy, proxy::CacheProperties, wire::Variant};

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// To see chains, plans and the shield.
    Look,
    /// To put the shield of an approved chain up, and to confirm it.
    Apply,
    /// To put the machine back.
    Revert,
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
            Permission::Admit => "org.quietcores1.admit",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Permission::Look => "see the shield",
            Permission::Apply => "apply an approved chain",
            Permission::Revert => "put the machine back",
            Permission::Admit => "let a thread into the shield",
        }
    }
}

/// Somebody may sit before a dialogue of polkit's, for a while.
const PATIENCE: Duration = Duration::from_secs(120);

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
}

impl Authority {
    /// Where there is no polkit, the members of `group` may.
    pub fn new(group: &str) -> Authority {
        Authority { group: group.to_owned() }
    }

    /// Whether `caller` may; root may.
    ///
    /// # Errors
    /// A sentence for a caller who may not, with what to do.
    pub(crate) async fn ask(
        &self,
        bus: &Connection,
        caller: &Caller,
        action: Permission,
    ) -> Result<(), Error> {
        if caller.uid == 0 {
            return Ok(());
        }
        match self.polkit(bus, caller, action).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refused(caller, action, "polkit refuses it")),
            Err(error) if is_absent(&error) => {
                if action == Permission::Look || self.in_group(caller) {
                    Ok(())
                } else {
                    let why = format!(
                        "there is no polkit here, and you are not in the group `{}`",
                        self.group
                    );
                    Err(self.refused(caller, action, &why))
                }
            }
            Err(error) => {
                Err(self.refused(caller, action, &format!("polkit does not answer: {error}")))
            }
        }
    }

    async fn polkit(
        &self,
        bus: &Connection,
        caller: &Caller,
        action: Permission,
    ) -> zbus::Result<bool> {
        let polkit =
            PolkitProxy::builder(bus).cache_properties(CacheProperties::No).build().await?;
        let subject =
            ("system-bus-name", HashMap::from([("name", Variant::from(caller.name.as_str()))]));
        let asked = polkit.check_authorization(&subject, action.id(), HashMap::new(), 1, "");
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => Ok(answer?.0),
            Err(_) => Err(zbus::Error::Failure(format!("no answer in {} s", PATIENCE.as_secs()))),
        }
    }

    /// By the groups that the caller's process is in, where the bus says them, else by the machine's own files.
    fn in_group(&self, caller: &Caller) -> bool {
        let groups = caller.groups.as_deref();
        Root::system().is_ok_and(|root| rights::in_group(&root, caller.uid, groups, &self.group))
    }

    fn refused(&self, caller: &Caller, action: Permission, why: &str) -> Error {
        Error::NotAllowed(format!(
            "user {} may not {}: {why}. Members of the group `{}` may (sudo usermod -aG {} NAME, then log in again), and \
             whom polkit's rules let do {}",
            caller.uid,
            action.what(),
            self.group,
            self.group,
            action.id()
        ))
    }
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
