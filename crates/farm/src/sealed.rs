//! A record on its way: its head as JSON, its histogram packed, and its machine's signature over both. What is read here was written by
//! strangers.

use crate::{
    Error, Result,
    packed::{pack, put, take, unpack},
};
use quiet_types::{
    Histogram,
    farm::{FarmRecord, RECORD_SCHEMA},
};
use ring::{
    digest,
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use std::fmt;

/// How each begins: the name and the version of the form.
const MAGIC: &[u8; 4] = b"QCF1";
/// The largest record; a server's own limit is 1 MiB.
pub const LARGEST: usize = 256 << 10;
const LARGEST_HEAD: usize = 64 << 10;
/// Bytes of a public key and of a signature.
const KEY: usize = 32;
const SIGNATURE: usize = 64;
/// Words of a record that are longer are no names.
const LONGEST: usize = 4096;

/// A machine's public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub [u8; KEY]);

impl HostKey {
    /// Of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<HostKey> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY || !text.is_ascii() {
            return None;
        }
        let mut key = [0; KEY];
        for (byte, two) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
        }
        Some(HostKey(key))
    }

    /// Whether it signed these bytes.
    pub fn signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0[..]).verify(bytes, signature).is_ok()
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({self})")
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a machine signs with. Its bytes never leave the machine.
pub struct SecretKey(Ed25519KeyPair);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

impl SecretKey {
    /// A new one, as bytes to be kept (PKCS #8).
    ///
    /// # Errors
    /// When the kernel gives no random numbers.
    pub fn generate() -> Result<Vec<u8>> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let made = made.map_err(|_| Error::new("cannot make a key: no random numbers"))?;
        Ok(made.as_ref().to_vec())
    }

    /// From the bytes that were kept.
    ///
    /// # Errors
    /// When they are no key.
    pub fn of(bytes: &[u8]) -> Result<SecretKey> {
        let key = Ed25519KeyPair::from_pkcs8(bytes);
        key.map(SecretKey).map_err(|error| Error::new(format!("cannot use this key: {error}")))
    }

    /// Its public half.
    pub fn public(&self) -> HostKey {
        let mut key = [0; KEY];
        key.copy_from_slice(self.0.public_key().as_ref());
        HostKey(key)
    }

    /// Signs.
    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.sign(bytes).as_ref().to_vec()
    }
}

/// The bytes of a record, signed: the same for the same record and key.
///
/// # Errors
/// When it is larger than records may be.
pub fn seal(record: &FarmRecord, key: &SecretKey) -> Result<Vec<u8>> {
    let head = FarmRecord { readings: Histogram::default(), ..record.clone() };
    let head = serde_json::to_vec(&head).map_err(|error| Error::unfit(error.to_string()))?;
    let readings = pack(&record.readings);
    let mut bytes = MAGIC.to_vec();
    put(&mut bytes, head.len() as u64);
    bytes.extend(&head);
    put(&mut bytes, readings.len() as u64);
    bytes.extend(&readings);
    bytes.extend(key.public().0);
    let signature = key.sign(&bytes);
    bytes.extend(signature);
    if head.len() > LARGEST_HEAD || bytes.len() > LARGEST {
        let why = format!("record {} has {} bytes; {LARGEST} may be", record.id, bytes.len());
        return Err(Error::unfit(why));
    }
    Ok(bytes)
}

/// A record that its signature holds for; whose key that is says nothing yet of whose record it is.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedRecord {
    /// The record.
    pub record: FarmRecord,
    /// Its histogram, packed.
    pub packed: Vec<u8>,
    /// Who signed it.
    pub key: HostKey,
}

/// Reads a record and looks at its signature.
///
/// # Errors
/// In a word why it is none: the reasons are few, so that they can be counted.
pub fn open(bytes: &[u8]) -> std::result::Result<OpenedRecord, &'static str> {
    if bytes.len() > LARGEST {
        return Err("larger than a record may be");
    }
    let mut rest = bytes.strip_prefix(MAGIC).ok_or("no record, or one of a newer version")?;
    let mut part = |most: usize| {
        let length = take(&mut rest).and_then(|n| usize::try_from(n).ok())?;
        let (part, after) = rest.split_at_checked(length).filter(|_| length <= most)?;
        rest = after;
        Some(part)
    };
    let cut = "cut short or damaged";
    let (head, packed) = (part(LARGEST_HEAD).ok_or(cut)?, part(LARGEST).ok_or(cut)?);
    let (key, signature) = rest.split_at_checked(KEY).ok_or(cut)?;
    let key = HostKey(key.try_into().map_err(|_| cut)?);
    if signature.len() != SIGNATURE {
        return Err(cut);
    }
    // Before anything is believed: what is parsed then is at least of one machine's making.
    if !key.signed(&bytes[..bytes.len() - SIGNATURE], signature) {
        return Err("its signature does not hold");
    }
    let mut record: FarmRecord = serde_json::from_slice(head).map_err(|_| "its head is none")?;
    record.readings = unpack(packed).ok_or("its histogram does not agree with itself")?;
    check(&record)?;
    Ok(OpenedRecord { record, packed: packed.to_vec(), key })
}

/// A host's name as it may stand in a subject and a file's name.
pub fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}

/// A name that is one: what may not stand in it becomes `-`.
pub fn plain_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let name: String = text.chars().take(63).map(plain).collect();
    if name.is_empty() { "nameless".to_owned() } else { name }
}

/// Whether a record says what one can say.
pub(crate) fn check(record: &FarmRecord) -> std::result::Result<(), &'static str> {
    let id = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    let words = [&record.says, &record.id, &record.setting.kernel, &record.setting.chain];
    if record.schema != RECORD_SCHEMA {
        Err("of a newer version")
    } else if !is_name(&record.host) {
        Err("its host's name is none")
    } else if record.id.is_empty() || record.id.len() > 120 || !record.id.bytes().all(id) {
        Err("its id is none")
    } else if words.iter().any(|text| text.len() > LONGEST) || record.causes.len() > 256 {
        Err("its words are too long")
    } else if !(0..=253_402_300_799_999).contains(&record.at) {
        Err("its time is none")
    } else if [record.expected, record.late, record.missed].iter().flatten().any(|n| *n >= 1 << 43)
    {
        Err("its counts are none")
    } else {
        Ok(())
    }
}

/// What a record is known by on its way: of all its bytes, so nobody else can foretell it.
pub fn message_id(bytes: &[u8]) -> String {
    hex(&digest::digest(&digest::SHA256, bytes).as_ref()[..20])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::record;
    use proptest::prelude::*;

    fn key() -> SecretKey {
        SecretKey::of(&SecretKey::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_record_comes_back_and_no_byte_of_it_can_be_changed() {
        let key = key();
        let record = record("studio-a", 1_700_000_000, 300);
        let sealed = seal(&record, &key).unwrap();
        assert_eq!(seal(&record, &key).unwrap(), sealed, "the same bytes each time");
        let opened = open(&sealed).unwrap();
        assert_eq!((opened.record, opened.key), (record, key.public()));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(&bad).is_err(), "byte {at}");
            assert!(open(&sealed[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(HostKey::parse(&key.public().to_string()), Some(key.public()));
    }

    #[test]
    fn what_is_signed_and_senseless_is_refused_too() {
        let key = key();
        let refused = |change: &dyn Fn(&mut FarmRecord)| {
            let mut record = record("studio-a", 1_700_000_000, 300);
            change(&mut record);
            open(&seal(&record, &key).unwrap()).unwrap_err()
        };
        assert_eq!(refused(&|r| r.host = "a.b".into()), "its host's name is none");
        assert_eq!(refused(&|r| r.id = "../x".into()), "its id is none");
        assert_eq!(refused(&|r| r.at = -1), "its time is none");
        assert_eq!(refused(&|r| r.expected = Some(u64::MAX)), "its counts are none");
        assert_eq!(refused(&|r| r.schema = "x/1".into()), "of a newer version");
        let odd = |r: &mut FarmRecord| r.readings.max = Some(quiet_types::Nanos(1));
        assert_eq!(refused(&odd), "its histogram does not agree with itself");
    }

    proptest! {
        #[test]
        fn strangers_bytes_break_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut all = MAGIC.to_vec();
            all.extend(bytes);
            prop_assert!(open(&all).is_err());
        }
    }
}
