//! Reading with a bound.

use rustix::fs::{FileType, Mode, OFlags};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// All bytes of an ordinary file.
///
/// # Errors
/// The kernel's; `InvalidInput` where it is a pipe, a device or a directory (none of them is waited for);
/// `FileTooLarge` where it has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // NONBLOCK: a pipe must not hang us.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    take(file, most)
}

/// The text of an ordinary file.
///
/// # Errors
/// As of [`read`]; `InvalidData` where it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    take_text(&read(path, most)?[..], most)
}

/// All bytes that come, up to `most`.
///
/// # Errors
/// The source's; `FileTooLarge` where more come.
pub fn take(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    // Most files of the kernel fit: one read, and one that finds the end.
    let mut bytes = Vec::with_capacity(4096);
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, larger(most)));
    }
    Ok(bytes)
}

/// As [`take`], and the bytes are text.
///
/// # Errors
/// As of [`take`]; `InvalidData` where it is not UTF-8.
pub fn take_text(from: impl Read, most: u64) -> io::Result<String> {
    let other = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(take(from, most)?).map_err(other)
}

/// `it is larger than 4 MiB`.
fn larger(most: u64) -> String {
    match most {
        _ if most >= 1 << 20 && most.is_multiple_of(1 << 20) => {
            format!("it is larger than {} MiB", most >> 20)
        }
        _ if most >= 1 << 10 && most.is_multiple_of(1 << 10) => {
            format!("it is larger than {} KiB", most >> 10)
        }
        _ => format!("it is larger than {most} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn more_than_the_bound_and_what_is_no_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [1; 4096]).unwrap();
        assert_eq!(read(&path, 4096).unwrap().len(), 4096);
        let error = read(&path, 4095).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::FileTooLarge, "it is larger than 4095 bytes".into())
        );
        assert_eq!(read(dir.path(), 10).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(&pipe, 10).unwrap_err().to_string(), "not a regular file");
        assert_eq!(
            read(Path::new("/proc/nothing"), 10).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            take(io::repeat(0), 2 << 20).unwrap_err().to_string(),
            "it is larger than 2 MiB"
        );
    }
}
