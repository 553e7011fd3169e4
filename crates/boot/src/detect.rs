//! Which boot loader starts this machine, by its files.

use super::{
    efi,
    form::{FileForm, parameters, spots, words_of},
    grub,
};
use quiet_linux::files::Tree;
use quiet_types::{boot::BootEntry, printable};
use serde::{Deserialize, Serialize};

/// A kind of boot loader, by how its parameters are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoaderKind {
    /// GRUB as Debian and its children have it: drop-ins and `update-grub`.
    Grub,
    /// GRUB whose `grub-mkconfig` reads `/etc/default/grub` alone.
    GrubMkconfig,
    /// GRUB with boot loader entries (`blscfg`): Fedora and its children.
    GrubBls,
    /// systemd-boot with boot loader entries.
    SystemdBoot,
    /// Unified kernel images: the parameters are inside of them.
    Uki,
    /// extlinux and syslinux, and U-Boot where it reads extlinux.conf.
    Extlinux,
    /// The firmware of the Raspberry Pi.
    RaspberryPi,
    /// U-Boot with armbianEnv.txt.
    Armbian,
    /// U-Boot with uEnv.txt or, as Khadas has it, env.txt.
    UEnv,
}

impl LoaderKind {
    /// Every kind, and its name on the command line.
    pub const ALL: [(LoaderKind, &str); 9] = [
        (LoaderKind::Grub, "grub"),
        (LoaderKind::GrubMkconfig, "grub-mkconfig"),
        (LoaderKind::GrubBls, "grub-bls"),
        (LoaderKind::SystemdBoot, "systemd-boot"),
        (LoaderKind::Uki, "uki"),
        (LoaderKind::Extlinux, "extlinux"),
        (LoaderKind::RaspberryPi, "raspberry-pi"),
        (LoaderKind::Armbian, "armbian"),
        (LoaderKind::UEnv, "uenv"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        LoaderKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// A boot loader that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// Its kind.
    pub kind: LoaderKind,
    /// The file that gave it away.
    pub evidence: String,
    /// Files that hold parameters and are edited, with their form.
    pub files: Vec<(String, FileForm)>,
    /// GRUB's generated configuration.
    pub generated: Option<String>,
}

/// The boot loaders whose files are there, with those sorted out that did not start this machine
/// as far as the firmware tells.
pub fn loaders(place: &Tree) -> Vec<Loader> {
    let found: Vec<Loader> = [
        raspberry_pi(place),
        armbian(place),
        uenv(place),
        grub_bls(place),
        grub(place),
        systemd_boot(place),
        uki(place),
        extlinux(place),
    ]
    .into_iter()
    .flatten()
    .collect();
    let systemd =
        |loader: &Loader| matches!(loader.kind, LoaderKind::SystemdBoot | LoaderKind::Uki);
    if found.len() < 2 {
        return found;
    }
    match efi::booted_by(place) {
        efi::Booted::Systemd => found.into_iter().filter(systemd).collect(),
        efi::Booted::Other => found.into_iter().filter(|loader| !systemd(loader)).collect(),
        efi::Booted::Untold => found,
    }
}

/// Its file, where GRUB reads boot loader entries.
pub const GRUB_FILE: &str = "A-quietcores-trial.conf";
/// Its file for systemd-boot, which reads names in lower case and sorts the same way.
pub const ENTRY_FILE: &str = "00-quietcores-trial.conf";
/// Where boot loader entries and the ESP are looked for.
pub(super) const BOOT_DIRS: [&str; 3] = ["/efi", "/boot", "/boot/efi"];

fn raspberry_pi(place: &Tree) -> Option<Loader> {
    let dir = ["/boot/firmware", "/boot"]
        .into_iter()
        .find(|dir| place.exists(&format!("{dir}/config.txt")))?;
    let config = place.text(&format!("{dir}/config.txt"))?;
    let name = pi_setting(&config, "cmdline").unwrap_or("cmdline.txt");
    let prefix = pi_setting(&config, "os_prefix").unwrap_or("");
    let path = [format!("{dir}/{prefix}{name}"), format!("{dir}/{name}")]
        .into_iter()
        .find(|path| place.exists(path))?;
    Some(Loader {
        kind: LoaderKind::RaspberryPi,
        evidence: path.clone(),
        files: vec![(path, FileForm::OneLine)],
        generated: None,
    })
}

/// The value of a setting of config.txt that holds for every board: outside of the sections of
/// other boards.
fn pi_setting<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    let mut all = true;
    let mut value = None;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            all = line == "[all]";
        } else if let Some((key, rest)) = line.split_once('=')
            && all
            && key.trim() == name
        {
            value = Some(rest.trim());
        }
    }
    value.filter(|value| !value.is_empty() && !value.contains(".."))
}

fn armbian(place: &Tree) -> Option<Loader> {
    let path = "/boot/armbianEnv.txt";
    place.exists(path).then(|| environment(LoaderKind::Armbian, path, "extraargs"))
}

/// An environment file that a board's own boot script reads, with the variable that the script puts at the
/// end of the command line.
///
/// # Source
/// BeagleBoard's Debian (`cmdline`); Khadas's Fenix, `config/bootenv` and `config/bootscripts` (`boot_user_args`
/// in uEnv.txt, `user_kernel_args` in env.txt); the boot scripts of Amlogic's boxes (`APPEND`).
fn uenv(place: &Tree) -> Option<Loader> {
    const PLACES: [(&str, &[&str]); 2] = [
        ("/boot/uEnv.txt", &["cmdline", "boot_user_args", "APPEND"]),
        ("/boot/env.txt", &["user_kernel_args"]),
    ];
    for (path, keys) in PLACES {
        let text = place.text(path).unwrap_or_default();
        // Such files serve many purposes; without its line one is not known to take parameters.
        let sets = |key: &&&str| {
            text.lines()
                .any(|line| line.strip_prefix(**key).is_some_and(|rest| rest.starts_with('=')))
        };
        if let Some(key) = keys.iter().find(sets) {
            return Some(environment(LoaderKind::UEnv, path, key));
        }
    }
    None
}

fn environment(kind: LoaderKind, path: &str, key: &str) -> Loader {
    let form = FileForm::Assignment { key: key.into() };
    Loader { kind, evidence: path.into(), files: vec![(path.into(), form)], generated: None }
}

fn grub_cfg(place: &Tree) -> Option<String> {
    ["/boot/grub/grub.cfg", "/boot/grub2/grub.cfg"]
        .into_iter()
        .find(|path| place.exists(path))
        .map(str::to_owned)
}

/// The entries of this system in a directory: not those of another one beside it.
fn entries(place: &Tree, dir: &str) -> Vec<String> {
    let all = all_entries(place, dir);
    let own: Vec<String> = all.iter().filter(|path| is_own(place, path)).cloned().collect();
    let ordinary = own.iter().any(|path| {
        let text = place.text(path).unwrap_or_default();
        spots(&FileForm::Bls, text.as_bytes())
            .is_ok_and(|spots| spots.iter().any(|spot| !spot.rescue))
    });
    if ordinary { own } else { all }
}

/// Whether an entry is of this system, by its machine id or else by the root file system that runs;
/// `true` where neither tells.
fn is_own(place: &Tree, path: &str) -> bool {
    let text = place.text(path).unwrap_or_default();
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '\t']).then(|| rest.trim())
        })
    };
    let ours = place.text("/etc/machine-id").unwrap_or_default();
    if let (Some(id), false) = (field("machine-id"), ours.trim().is_empty()) {
        return id == ours.trim();
    }
    let root = |words: &[String]| words.iter().find(|word| word.starts_with("root=")).cloned();
    let running = root(&words_of(place.text("/proc/cmdline").unwrap_or_default().as_bytes()));
    let entry = spots(&FileForm::Bls, text.as_bytes()).unwrap_or_default();
    let entry: Vec<String> = entry.into_iter().flat_map(|spot| spot.words).collect();
    match (running, root(&entry)) {
        (Some(running), Some(entry)) => running == entry,
        _ => true,
    }
}

fn all_entries(place: &Tree, dir: &str) -> Vec<String> {
    let dir = format!("{dir}/loader/entries");
    let mut found = Vec::new();
    for name in place.list(&dir) {
        // Hidden files are no entries; neither is our own trial.
        let trial = [ENTRY_FILE, GRUB_FILE].contains(&name.as_str());
        if name.ends_with(".conf") && !name.starts_with('.') && !trial {
            found.push(format!("{dir}/{name}"));
        }
    }
    found
}

fn kernel_cmdline(place: &Tree) -> Option<(String, FileForm)> {
    let path = "/etc/kernel/cmdline";
    place.exists(path).then(|| (path.to_owned(), FileForm::KernelCmdline))
}

fn grub_bls(place: &Tree) -> Option<Loader> {
    let cfg = grub_cfg(place)?;
    let uses = place.text(&cfg).is_some_and(|text| {
        text.lines().any(|line| line.split_whitespace().next() == Some("blscfg"))
    }) || place.text("/etc/default/grub").is_some_and(|text| {
        text.lines().any(|line| line.trim().trim_matches('"') == "GRUB_ENABLE_BLSCFG=true")
    });
    let entries = entries(place, "/boot");
    if !uses || entries.is_empty() {
        return None;
    }
    let mut files = Vec::new();
    let mut by_variable = false;
    for path in entries {
        let words = place.read(&path).ok().flatten().map(|found| found.bytes);
        let words =
            words.and_then(|text| parameters(&FileForm::Bls, &text).ok()).unwrap_or_default();
        if words.iter().any(|(word, _)| word == "$kernelopts") {
            by_variable = true;
        } else {
            files.push((path, FileForm::Bls));
        }
    }
    if by_variable {
        let dir = cfg.trim_end_matches("/grub.cfg");
        let block = place.real(&format!("{dir}/grubenv"))?;
        files.push((block, FileForm::GrubEnv));
    }
    files.extend(kernel_cmdline(place));
    Some(Loader { kind: LoaderKind::GrubBls, evidence: cfg.clone(), files, generated: Some(cfg) })
}

fn grub(place: &Tree) -> Option<Loader> {
    let cfg = grub_cfg(place)?;
    if grub_bls(place).is_some() || !place.exists("/etc/default/grub") {
        return None;
    }
    let (kind, files) = if grub::updater(place, &cfg).is_some_and(|(_, debian)| debian) {
        (LoaderKind::Grub, vec![])
    } else {
        let form = FileForm::ShellAppend { variable: grub::VARIABLE.into() };
        (LoaderKind::GrubMkconfig, vec![("/etc/default/grub".to_owned(), form)])
    };
    Some(Loader { kind, evidence: cfg.clone(), files, generated: Some(cfg) })
}

fn systemd_boot(place: &Tree) -> Option<Loader> {
    let evidence = BOOT_DIRS
        .iter()
        .flat_map(|dir| [format!("{dir}/loader/loader.conf"), format!("{dir}/EFI/systemd")])
        .find(|path| place.exists(path))?;
    let mut files: Vec<(String, FileForm)> = Vec::new();
    for dir in BOOT_DIRS {
        files.extend(entries(place, dir).into_iter().map(|path| (path, FileForm::Bls)));
    }
    if files.is_empty() {
        return None;
    }
    files.extend(kernel_cmdline(place));
    Some(Loader { kind: LoaderKind::SystemdBoot, evidence, files, generated: None })
}

fn uki(place: &Tree) -> Option<Loader> {
    if systemd_boot(place).is_some() {
        return None;
    }
    let evidence = BOOT_DIRS.iter().find_map(|dir| {
        let folder = format!("{dir}/EFI/Linux");
        let images = place.list(&folder);
        images.iter().find(|name| name.ends_with(".efi")).map(|name| format!("{folder}/{name}"))
    })?;
    let files = kernel_cmdline(place).into_iter().collect();
    Some(Loader { kind: LoaderKind::Uki, evidence, files, generated: None })
}

fn extlinux(place: &Tree) -> Option<Loader> {
    const FILES: [&str; 7] = [
        "/boot/extlinux/extlinux.conf",
        "/boot/extlinux.conf",
        "/boot/syslinux/syslinux.cfg",
        "/boot/syslinux/extlinux.conf",
        "/boot/syslinux.cfg",
        "/boot/efi/syslinux.cfg",
        "/boot/efi/EFI/syslinux/syslinux.cfg",
    ];
    let path = FILES.into_iter().find(|path| place.exists(path))?;
    let mut files = vec![(path.to_owned(), FileForm::Extlinux)];
    let text = place.text(path).unwrap_or_default();
    if text.contains("use: u-boot-update") {
        files.extend(kernel_cmdline(place));
    }
    Some(Loader { kind: LoaderKind::Extlinux, evidence: path.into(), files, generated: None })
}

/// What the entries of a loader say now, rescue entries not among them, and the length in bytes of
/// the longest.
///
/// # Errors
/// A sentence when a file is not of its form.
pub fn entries_of(place: &Tree, loader: &Loader) -> Result<(Vec<BootEntry>, usize), String> {
    let mut found = Vec::new();
    let mut longest = 0;
    let named = |path: &str, line: usize| format!("{}, line {line}", place.shown(path));
    for (path, form) in &loader.files {
        let Some(file) = place.read(path).map_err(|e| e.to_string())? else { continue };
        let sentence = |why: String| format!("cannot understand {}: {why}", place.shown(path));
        for spot in spots(form, &file.bytes).map_err(sentence)?.iter().filter(|s| !s.rescue) {
            let words = spot.words.clone();
            longest = longest.max(words.iter().map(|word| word.len() + 1).sum());
            // What only continues a variable of its own says nothing yet.
            if !matches!(form, FileForm::ShellAppend { .. }) {
                found.push(BootEntry { place: named(path, spot.line), words });
            }
        }
    }
    if matches!(loader.kind, LoaderKind::Grub | LoaderKind::GrubMkconfig)
        && let Some(cfg) = loader.generated.as_ref()
        && let Some(file) = place.read(cfg).map_err(|e| e.to_string())?
    {
        for entry in grub::own_entries(&file.bytes).iter().filter(|entry| !entry.rescue) {
            longest = longest.max(entry.range.len());
            let words = words_of(&file.bytes[entry.range.clone()]);
            found.push(BootEntry { place: named(cfg, entry.line), words });
        }
    }
    if found.is_empty() && loader.kind != LoaderKind::Uki && !loader.files.is_empty() {
        let only_made = loader.files.iter().all(|(_, form)| {
            matches!(
                form,
                FileForm::Assignment { .. }
                    | FileForm::KernelCmdline
                    | FileForm::ShellAppend { .. }
            )
        });
        if !only_made {
            return Err(format!(
                "{} has no boot entry for Linux but rescue ones",
                printable(&loader.evidence, 200)
            ));
        }
    }
    Ok((found, longest))
}
