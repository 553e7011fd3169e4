//! What a caller is answered where the service could not do it.

/// Each is an error of its own on the bus, with a sentence.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.quietcores1.Error")]
pub enum Error {
    /// The bus itself failed.
    #[zbus(error)]
    Bus(zbus::Error),
    /// The caller may not.
    NotAllowed(String),
    /// What the caller named is not there, or makes no sense.
    Asked(String),
    /// Somebody else is at work, or too many wait: try again.
    Busy(String),
    /// It was tried, and failed; nothing is left half done.
    Failed(String),
}

impl Error {
    /// The sentence alone.
    pub fn sentence(&self) -> String {
        match self {
            Error::Bus(error) => error.to_string(),
            Error::NotAllowed(why) | Error::Asked(why) | Error::Busy(why) | Error::Failed(why) => {
                why.clone()
            }
        }
    }
}
