//! GRUB's environment block: `key=value` lines behind a head line, filled with `#` to a fixed
//! size, because GRUB writes it in place without a file system driver that could grow it.
//!
//! # Source
//! `grub-core/lib/envblk.c`; the manual's chapter on the environment block. 1024 bytes.

use super::lines::lines;
use std::ops::Range;

const HEAD: &[u8] = b"# GRUB Environment Block\n";

/// Where the value of a variable stands, with its escapes; `None` where it is not set.
///
/// # Errors
/// A sentence when this is no environment block.
pub fn variable(block: &[u8], name: &str) -> Result<Option<Range<usize>>, String> {
    check(block)?;
    let start = format!("{name}=");
    let content = &block[..content_end(block)];
    let found = lines(content).filter(|line| content[line.clone()].starts_with(start.as_bytes()));
    Ok(found.last().map(|line| line.start + start.len()..line.end))
}

/// The block with a variable set, at its place or at the end.
///
/// # Errors
/// A sentence when this is no environment block, or it has no room.
pub fn set(block: &[u8], name: &str, value: &str) -> Result<Vec<u8>, String> {
    let mut new = block.to_vec();
    if let Some(range) = variable(block, name)? {
        new.splice(range, value.bytes());
    } else {
        let end = content_end(block);
        new.splice(end..end, format!("{name}={value}\n").bytes());
    }
    repad(&new, block.len())
}

/// The block without a variable that is empty or has `value`; `None` where it is something else or
/// not there. GRUB empties `next_entry` when it has followed it.
///
/// # Errors
/// A sentence when this is no environment block.
pub fn forget(block: &[u8], name: &str, value: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(range) = variable(block, name)? else { return Ok(None) };
    if !range.is_empty() && &block[range.clone()] != value.as_bytes() {
        return Ok(None);
    }
    let mut new = block.to_vec();
    new.drain(range.start - name.len() - 1..range.end + 1);
    repad(&new, block.len()).map(Some)
}

/// An empty block, as `grub-editenv create` makes it.
pub fn empty() -> Vec<u8> {
    let mut block = HEAD.to_vec();
    block.resize(1024, b'#');
    block
}

/// The content filled with `#` to `size` bytes.
///
/// # Errors
/// A sentence when the content is larger.
pub fn repad(block: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let end = content_end(block);
    if end > size {
        return Err(format!(
            "it would need {end} bytes, and GRUB's environment block has {size}: shorten the CPU \
             list or what else stands in it (`grub-editenv list`)"
        ));
    }
    let mut new = block[..end].to_vec();
    new.resize(size, b'#');
    Ok(new)
}

/// A text as people want to see it: an environment block without what fills it.
pub fn without_filling(text: &[u8]) -> &[u8] {
    if text.starts_with(HEAD) { &text[..content_end(text)] } else { text }
}

/// Behind the newline of the last line that is no filling.
fn content_end(block: &[u8]) -> usize {
    block.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)
}

fn check(block: &[u8]) -> Result<(), String> {
    if !block.starts_with(HEAD) {
        return Err("it does not begin as GRUB's environment block does".into());
    }
    if block.len() < 1024 || block[content_end(block)..].iter().any(|b| *b != b'#') {
        return Err("it is no whole environment block of GRUB (1024 bytes, filled with #)".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::form::{FileForm, add, remove};
    use super::*;
    use proptest::prelude::*;

    fn block(content: &str) -> Vec<u8> {
        repad(&[HEAD, content.as_bytes()].concat(), 1024).unwrap()
    }

    fn words() -> Vec<String> {
        ["isolcpus=managed_irq,domain,2-3", "irqaffinity=0-1"].map(Into::into).into()
    }

    #[test]
    fn kernelopts_grow_and_the_block_does_not() {
        let old = block("saved_entry=0\nkernelopts=root=/dev/vda2 ro quiet \nboot_success=1\n");
        let new = add(&FileForm::GrubEnv, &old, &words()).unwrap();
        assert_eq!(new.len(), 1024);
        let range = variable(&new, "kernelopts").unwrap().unwrap();
        assert_eq!(
            &new[range],
            b"root=/dev/vda2 ro quiet isolcpus=managed_irq,domain,2-3 irqaffinity=0-1 "
        );
        assert_eq!(remove(&FileForm::GrubEnv, &new, &words()).unwrap(), (old, 2));
    }

    #[test]
    fn a_full_block_is_refused_and_not_cut() {
        let old = block(&format!("kernelopts={}\n", "x".repeat(940)));
        let why = add(&FileForm::GrubEnv, &old, &words()).unwrap_err();
        assert!(why.contains("GRUB's environment block has 1024"), "{why}");
    }

    #[test]
    fn a_variable_is_set_and_the_others_stay() {
        let old = block("saved_entry=0\n");
        let new = set(&old, "next_entry", "quietcores-trial").unwrap();
        assert_eq!(new, block("saved_entry=0\nnext_entry=quietcores-trial\n"));
        let again = set(&new, "next_entry", "").unwrap();
        assert_eq!(again, block("saved_entry=0\nnext_entry=\n"));
        assert_eq!(set(&empty(), "a", "b").unwrap(), block("a=b\n"));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for bad in [b"".as_slice(), b"kernelopts=a\n", &block("")[..1000]] {
            assert!(set(bad, "a", "b").is_err());
        }
        let mut torn = block("a=b\n");
        torn[1000] = 0;
        assert!(variable(&torn, "a").is_err());
    }

    proptest! {
        #[test]
        fn a_block_comes_back_to_the_byte(
            before in "([a-z_]{1,8}=[a-z0-9= ./\\\\-]{0,40}\n){0,4}",
            value in "[a-z0-9= ./-]{0,120}",
            after in "(# [A-Z]{0,20}\n)?([a-z]{1,8}=[a-z ]{0,30}\n){0,4}",
        ) {
            let old = block(&format!("{before}kernelopts={value}\n{after}"));
            let new = add(&FileForm::GrubEnv, &old, &words()).unwrap();
            prop_assert_eq!(new.len(), old.len());
            prop_assert_eq!(remove(&FileForm::GrubEnv, &new, &words()).unwrap().0, old);
        }
    }
}
