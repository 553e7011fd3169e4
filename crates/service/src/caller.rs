//! Who calls, by the bus's own word.

use crate::Error;
use zbus::{Connection, fdo::DBusProxy, message::Header, names::BusName};

/// A caller, as the bus knew him when he connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// His unique name on the bus.
    pub name: String,
    /// His user.
    pub uid: u32,
    /// The groups of his process, where this bus says them.
    pub groups: Option<Vec<u32>>,
}

impl Caller {
    /// Who sent this message.
    ///
    /// # Errors
    /// When he is gone already, or the bus does not say who he is.
    pub async fn of(bus: &Connection, header: &Header<'_>) -> Result<Caller, Error> {
        let unknown = || Error::NotAllowed("the bus does not say who calls".into());
        let sender = header.sender().ok_or_else(unknown)?.to_owned();
        let bus = DBusProxy::new(bus).await?;
        let told = bus.get_connection_credentials(BusName::from(&sender)).await;
        let told = told.map_err(|_| unknown())?;
        Ok(Caller {
            name: sender.to_string(),
            uid: told.unix_user_id().ok_or_else(unknown)?,
            groups: told.unix_group_ids().cloned(),
        })
    }
}
