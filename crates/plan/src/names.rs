//! Names as the kernel cuts and makes them.

/// The kernel keeps so many bytes of a thread's name.
pub(crate) const LONGEST: usize = 15;

/// The interrupt that a thread of this name handles, if it is the kernel's: any program may call a thread so.
pub(crate) fn served(comm: &str) -> Option<u32> {
    let (digits, _) = comm.strip_prefix("irq/")?.split_once('-')?;
    let is_number = digits == "0" || digits.starts_with(|c: char| matches!(c, '1'..='9'));
    digits.parse().ok().filter(|_| is_number)
}

/// Whether `name` stands in a card's description as a word.
pub(crate) fn says(description: &str, name: &str) -> bool {
    description.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
}

/// A name as the kernel keeps it.
pub(crate) fn cut(name: &str) -> String {
    String::from_utf8_lossy(&name.as_bytes()[..name.len().min(LONGEST)]).into_owned()
}
