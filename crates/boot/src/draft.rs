//! Changes of files as they are gathered: read, nothing written.

use super::{
    detect::{Loader, LoaderKind},
    error::{Error, ErrorKind, Result},
    form::{self, FileForm},
    grub,
    record::{FileChange, Ours, missing_dirs},
    unit::{self, Service},
};
use quiet_linux::files::{FileOwner, FoundFile, Tree, split};
use quiet_types::{Finding, Severity};

/// For how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Until `unpersist`.
    Lasting,
    /// For the next boot; then as before, unless it is blessed.
    OneBoot,
}

/// A change with the texts it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftedChange {
    /// What is recorded.
    pub change: FileChange,
    /// Files: the text as it is.
    pub old: Option<Vec<u8>>,
    /// Files: the text as it becomes.
    pub new: Option<Vec<u8>>,
}

/// Changes as they are gathered.
pub(super) struct Draft<'a> {
    pub place: &'a Tree,
    pub steps: Vec<DraftedChange>,
    /// See [`Proposal::sources`](super::Proposal::sources).
    pub sources: Vec<(String, Option<Vec<u8>>)>,
    pub findings: Vec<Finding>,
}

impl<'a> Draft<'a> {
    /// With no change yet.
    pub fn on(place: &'a Tree) -> Draft<'a> {
        Draft { place, steps: Vec::new(), sources: Vec::new(), findings: Vec::new() }
    }

    /// Reads a file that a change is made from.
    pub fn source(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        let text = self.place.read(path)?.map(|found| found.bytes);
        self.sources.push((path.to_owned(), text.clone()));
        Ok(text)
    }

    pub fn loader(&mut self, loader: &Loader, words: &[String]) -> Result<()> {
        for (path, form) in &loader.files {
            self.edit(path, form, words)?;
        }
        match loader.kind {
            LoaderKind::Grub => {
                let form = FileForm::ShellAppend { variable: grub::VARIABLE.into() };
                let ours = Ours::Words { form, words: words.to_vec() };
                self.make_with(grub::DROP_IN, grub::drop_in(words).into_bytes(), ours)?;
                self.generate(loader)?;
            }
            LoaderKind::GrubMkconfig => self.generate(loader)?,
            LoaderKind::Uki => self.unified_image(loader)?,
            LoaderKind::Extlinux => self.extlinux_source(loader, words)?,
            LoaderKind::GrubBls | LoaderKind::SystemdBoot => self.later_kernels(),
            LoaderKind::RaspberryPi | LoaderKind::Armbian | LoaderKind::UEnv => {}
        }
        Ok(())
    }

    /// Words into a file of others.
    pub fn edit(&mut self, path: &str, form: &FileForm, words: &[String]) -> Result<()> {
        let shown = self.place.shown(path);
        let Some(found) = self.place.read(path)? else {
            return Err(Error::of(
                ErrorKind::Loader,
                format!("cannot read {shown}: it vanished just now"),
            ));
        };
        let new = match form::add(form, &found.bytes, words) {
            Ok(new) => new,
            // A rescue entry is the way back; others may stand beside it.
            Err(_)
                if *form == FileForm::Bls && form::parameters(form, &found.bytes) == Ok(vec![]) =>
            {
                return Ok(());
            }
            Err(why) => {
                return Err(Error::of(ErrorKind::Loader, format!("cannot change {shown}: {why}")));
            }
        };
        let ours = Ours::Words { form: form.clone(), words: words.to_vec() };
        self.replace(path, found, new, ours);
        Ok(())
    }

    /// A text for a file that is there; a link to it is followed now, not when it is written.
    pub fn replace(&mut self, path: &str, found: FoundFile, new: Vec<u8>, ours: Ours) {
        let path = self.place.real(path).unwrap_or_else(|| path.to_owned());
        let change = FileChange::File { path, ours, old: Some(found.owner), new: found.owner };
        self.steps.push(DraftedChange { change, old: Some(found.bytes), new: Some(new) });
    }

    /// A file of our own, where there must be none yet.
    pub fn make(&mut self, path: &str, new: Vec<u8>) -> Result<()> {
        self.make_with(path, new, Ours::Whole)
    }

    pub fn make_with(&mut self, path: &str, new: Vec<u8>, ours: Ours) -> Result<()> {
        if self.place.exists(path) || self.place.link(path).is_some() {
            return Err(Error::of(
                ErrorKind::Loader,
                format!(
                    "cannot write {}: there is a file of that name, and no record that quietcores made \
                 it; move it away",
                    self.place.shown(path)
                ),
            ));
        }
        self.dirs(path);
        let owner = FileOwner {
            mode: 0o644,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let path = self.place.real(path).unwrap_or_else(|| path.to_owned());
        let change = FileChange::File { path, ours, old: None, new: owner };
        self.steps.push(DraftedChange { change, old: None, new: Some(new) });
        Ok(())
    }

    /// The directories that a new file needs.
    fn dirs(&mut self, path: &str) {
        for path in missing_dirs(self.place, path) {
            let made = |step: &DraftedChange| matches!(&step.change, FileChange::Dir { path: p } if *p == path);
            if !self.steps.iter().any(made) {
                self.steps.push(DraftedChange {
                    change: FileChange::Dir { path },
                    old: None,
                    new: None,
                });
            }
        }
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        if self.place.link(path).is_some() || self.place.exists(path) {
            return Err(Error::of(
                ErrorKind::Loader,
                format!(
                    "cannot make the link {}: there is something of that name; move it away",
                    self.place.shown(path)
                ),
            ));
        }
        self.dirs(path);
        let change = FileChange::Link { path: path.into(), target: target.into() };
        self.steps.push(DraftedChange { change, old: None, new: None });
        Ok(())
    }

    fn generate(&mut self, loader: &Loader) -> Result<()> {
        let path = loader.generated.clone().unwrap_or_default();
        let (command, _) = grub::updater(self.place, &path).ok_or_else(|| {
            Error::of(ErrorKind::Command, "GRUB's menu cannot be made anew: neither update-grub nor grub-mkconfig is installed")
        })?;
        let path = self.place.real(&path).unwrap_or(path);
        let Some(found) = self.place.read(&path)? else {
            return Err(Error::of(
                ErrorKind::Loader,
                format!("cannot read {path}: it vanished just now"),
            ));
        };
        let change = FileChange::Generate { command, path, old: found.owner };
        self.steps.push(DraftedChange { change, old: Some(found.bytes), new: None });
        Ok(())
    }

    fn unified_image(&mut self, loader: &Loader) -> Result<()> {
        if self.steps.is_empty() {
            return Err(Error::of(
                ErrorKind::Loader,
                format!(
                    "{} holds its parameters inside, and there is no /etc/kernel/cmdline to make a new \
                 one from: write the present parameters into that file, then persist again",
                    loader.evidence
                ),
            ));
        }
        self.findings.push(
            Finding::new(
                Severity::Warning,
                "persist.unified_image",
                "the boot parameters are inside of a unified kernel image, which has to be made anew",
            )
            .evidence(loader.evidence.clone())
            .remedy(
                "before the reboot: `kernel-install add-all` (or your distribution's way); the same \
                 after unpersist",
            ),
        );
        Ok(())
    }

    /// extlinux.conf that u-boot-update writes anew for each kernel: its source gets the words too.
    fn extlinux_source(&mut self, loader: &Loader, words: &[String]) -> Result<()> {
        let text = self.place.text(&loader.evidence).unwrap_or_default();
        if !text.contains("use: u-boot-update") {
            return Ok(());
        }
        let set = self
            .place
            .text("/etc/default/u-boot")
            .is_some_and(|text| text.lines().any(|line| line.starts_with("U_BOOT_PARAMETERS=")));
        if set || !self.place.exists("/etc/kernel/cmdline") {
            let run: String = words.iter().map(|word| format!(" {word}")).collect();
            let text = format!(
                "# Written by `quietcores persist`, taken away by `quietcores unpersist`.\n\
                 U_BOOT_PARAMETERS=\"${{U_BOOT_PARAMETERS:-ro quiet}}{run}\"\n"
            );
            self.make("/etc/u-boot-menu/conf.d/quietcores.conf", text.into_bytes())?;
        }
        Ok(())
    }

    fn later_kernels(&mut self) {
        if !self.place.exists("/etc/kernel/cmdline") {
            self.findings.push(
                Finding::new(
                    Severity::Note,
                    "persist.later_kernels",
                    "there is no /etc/kernel/cmdline: an entry for a new kernel takes the \
                     parameters of the boot in which it is installed",
                )
                .effect("a kernel installed before the reboot comes without ours"),
            );
        }
    }

    pub fn service(&mut self, service: &Service, term: Term) -> Result<()> {
        if let Some(chain) = &service.chain {
            self.make(unit::CHAIN, chain.clone())?;
        }
        let mut units =
            vec![(unit::UNIT, unit::service(service)?), (unit::WATCH, unit::watch(service)?)];
        if term == Term::OneBoot {
            units.push((unit::BLESS, unit::bless(&service.program)?));
        }
        for (path, text) in units {
            self.make(path, text.into_bytes())?;
            let name = split(path).1;
            self.link(&format!("{}/{name}", unit::WANTS), path)?;
        }
        Ok(())
    }

    /// The unit by which a tune of boot parameters goes on after each reboot.
    pub fn resumption(&mut self, program: &str, arguments: &[String]) -> Result<()> {
        self.make(unit::TUNE, unit::resumption(program, arguments)?.into_bytes())?;
        self.link(&format!("{}/{}", unit::WANTS, split(unit::TUNE).1), unit::TUNE)
    }
}
