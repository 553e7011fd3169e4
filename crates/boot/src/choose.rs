//! Which boot loader is meant, and which program root may be made to start at every boot.

use super::{
    detect::{Loader, LoaderKind, loaders},
    error::{Error, ErrorKind, Result},
};
use quiet_linux::files::Tree;
use quiet_types::printable;
use std::{os::unix::fs::MetadataExt, path::Path};

/// The boot loader that gets these words: the one that is named, else the only one whose files are there.
///
/// # Errors
/// A sentence where there is none, or are several.
pub fn the_loader(place: &Tree, named: Option<LoaderKind>, words: &[String]) -> Result<Loader> {
    let mut found = loaders(place);
    if let Some(kind) = named {
        found.retain(|loader| loader.kind == kind);
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::of(
            ErrorKind::Loader,
            format!(
                "no boot loader {} was found below {}; add these words to the kernel's command line by hand: {}",
                named.map_or("that is known here", LoaderKind::name),
                place.shown("/boot"),
                words.join(" ")
            ),
        )),
        _ => {
            let each = found
                .iter()
                .map(|one| format!("{} ({})", one.kind.name(), printable(&one.evidence, 200)));
            Err(Error::new(format!(
                "the files of several boot loaders are there: {}; say which one starts this machine, with --loader NAME",
                each.collect::<Vec<String>>().join(", ")
            )))
        }
    }
}

/// What root runs at every boot must not be replaceable by anybody else.
///
/// # Errors
/// A sentence where it is; or where it cannot be looked at.
pub fn only_roots(program: &Path) -> Result<()> {
    let shown = |path: &Path| path.display().to_string();
    let whole = program.canonicalize().map_err(|e| Error::io("find", &shown(program), e))?;
    for part in whole.ancestors() {
        let meta = part.metadata().map_err(|e| Error::io("look at", &shown(part), e))?;
        if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
            return Err(Error::new(format!(
                "root would run {} at every boot, and others than root can replace {}: install the program first (sudo install \
                 quietcores /usr/local/bin/), or leave the unit out with --no-unit",
                shown(&whole),
                shown(part)
            )));
        }
    }
    Ok(())
}
