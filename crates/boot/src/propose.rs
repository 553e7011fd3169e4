//! From what is asked to the changes of files that bring it: read, nothing written.

use super::{
    detect::{Loader, LoaderKind},
    diff,
    draft::{Draft, DraftedChange, Term},
    error::Result,
    grubenv,
    record::FileChange,
    trial,
    unit::Service,
};
use quiet_linux::files::Tree;
use quiet_types::{Finding, boot::BootParameters};

/// What is to be made to last.
#[derive(Clone, Copy, Debug)]
pub struct PersistRequest<'a> {
    /// The boot parameters.
    pub asked: &'a BootParameters,
    /// The boot loader that gets them.
    pub loader: &'a Loader,
    /// The systemd unit; `None` where only boot parameters are wanted.
    pub service: Option<&'a Service>,
    /// Once, or until taken back.
    pub term: Term,
    /// Of a trial: the kernel that boots, by its release; `None` for the one that runs.
    pub kernel: Option<&'a str>,
}

/// The changes, not made yet.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The boot loader's kind.
    pub loader: LoaderKind,
    /// What is asked.
    pub asked: BootParameters,
    /// For how long.
    pub term: Term,
    /// The arguments of `apply` in the unit.
    pub apply: Option<Vec<String>>,
    /// In the order in which they are made.
    pub steps: Vec<DraftedChange>,
    /// Files that the changes were made from and that stay as they are, each with what it held.
    pub sources: Vec<(String, Option<Vec<u8>>)>,
    /// What the owner should know.
    pub findings: Vec<Finding>,
}

impl Proposal {
    /// Every change of a text as a unified diff, and in words what cannot be shown so.
    pub fn diff(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            match &step.change {
                FileChange::File { path, .. } => {
                    let shown = |text| Option::map(text, grubenv::without_filling);
                    text += &diff::unified(
                        path,
                        shown(step.old.as_deref()),
                        shown(step.new.as_deref()),
                    );
                }
                FileChange::Link { path, target } => text += &format!("link {path} -> {target}\n"),
                FileChange::Generate { command, path, .. } => {
                    text += &format!("run {} (makes {path} anew)\n", command.join(" "));
                }
                FileChange::OneShot { entry } => {
                    text += &format!("ask the firmware for one boot of {entry}\n");
                }
                FileChange::Dir { .. } => {}
            }
        }
        text
    }
}

/// The changes that bring what is asked.
///
/// # Errors
/// A sentence when a file cannot be read, is not of its form or belongs to somebody else, or when
/// the loader has no trial boot.
pub fn propose(place: &Tree, request: &PersistRequest<'_>) -> Result<Proposal> {
    let mut draft = Draft::on(place);
    let words = request.asked.words();
    match request.term {
        Term::OneBoot if request.kernel.is_some() || !words.is_empty() => {
            trial::steps(&mut draft, request.loader, &words, request.kernel)?;
        }
        Term::Lasting if !words.is_empty() => draft.loader(request.loader, &words)?,
        _ => {}
    }
    if let Some(service) = request.service {
        draft.service(service, request.term)?;
    }
    Ok(Proposal {
        loader: request.loader.kind,
        asked: request.asked.clone(),
        term: request.term,
        apply: request.service.map(|service| service.apply.clone()),
        steps: draft.steps,
        sources: draft.sources,
        findings: draft.findings,
    })
}

/// The changes that have every boot start this program again, until they are taken back: a unit, and nothing of the boot loader's.
///
/// # Errors
/// A sentence when the unit is there already, or a word cannot stand in it as it is.
pub fn propose_resumption(
    place: &Tree,
    loader: LoaderKind,
    program: &str,
    arguments: &[String],
) -> Result<Proposal> {
    let mut draft = Draft::on(place);
    draft.resumption(program, arguments)?;
    Ok(Proposal {
        loader,
        asked: BootParameters::default(),
        term: Term::Lasting,
        apply: None,
        steps: draft.steps,
        sources: draft.sources,
        findings: draft.findings,
    })
}
