//! One boot on trial: an entry of its own that the loader starts once, the old default untouched.

use super::{
    detect::{BOOT_DIRS, ENTRY_FILE, GRUB_FILE, Loader, LoaderKind},
    draft::{Draft, DraftedChange},
    efi,
    error::{Error, ErrorKind, Result},
    form::{self, FileForm},
    grub, grubenv,
    record::{FileChange, Ours},
};
use quiet_linux::files::{Tree, split};
use quiet_types::{Finding, Severity, printable};

/// How a person starts a trial that was prepared.
pub fn how_to_start(kind: LoaderKind) -> &'static str {
    match kind {
        LoaderKind::RaspberryPi => "sudo reboot '0 tryboot'",
        _ => "sudo reboot",
    }
}

/// The command that starts a trial that was prepared, by systemd.
pub fn start_words(kind: LoaderKind) -> Vec<String> {
    let mut words = vec!["systemctl".to_owned(), "reboot".to_owned()];
    if kind == LoaderKind::RaspberryPi {
        words.push("--reboot-argument=0 tryboot".to_owned());
    }
    words
}

/// The changes for one boot on trial, of the kernel of this release; of the one that runs where none is named.
pub(super) fn steps(
    draft: &mut Draft<'_>,
    loader: &Loader,
    words: &[String],
    kernel: Option<&str>,
) -> Result<()> {
    match loader.kind {
        LoaderKind::Grub | LoaderKind::GrubMkconfig => grub_entry(draft, loader, words, kernel),
        LoaderKind::GrubBls => {
            let dir = format!("/boot/loader/entries/{GRUB_FILE}");
            entry_file(draft, loader, (words, kernel), &dir)?;
            next_entry(draft, loader)
        }
        LoaderKind::SystemdBoot => {
            if !efi::takes_one_shot(draft.place) {
                return Err(none("this systemd-boot does not take one-shot entries"));
            }
            let dir = BOOT_DIRS
                .iter()
                .find(|dir| {
                    loader.files.iter().any(|(path, _)| path.starts_with(&format!("{dir}/loader/")))
                })
                .unwrap_or(&"/boot");
            let path = format!("{dir}/loader/entries/{ENTRY_FILE}");
            entry_file(draft, loader, (words, kernel), &path)?;
            let change = FileChange::OneShot { entry: ENTRY_FILE.into() };
            draft.steps.push(DraftedChange { change, old: None, new: None });
            Ok(())
        }
        LoaderKind::RaspberryPi
            if kernel.is_some_and(|k| release(draft.place).as_deref() != Some(k)) =>
        {
            Err(none("another kernel is no matter of a command line on a Raspberry Pi"))
        }
        LoaderKind::RaspberryPi => tryboot(draft, loader, words),
        LoaderKind::Extlinux => Err(none(
            "extlinux and syslinux have no one-shot entry that can be asked for by a file",
        )),
        LoaderKind::Armbian | LoaderKind::UEnv => {
            Err(none("U-Boot's environment files have no one-shot form"))
        }
        LoaderKind::Uki => Err(none("a unified kernel image would have to be built for it")),
    }
}

fn none(why: &str) -> Error {
    Error::new(format!(
        "no trial boot here: {why}; persist without --trial, and keep a way to change the boot \
         entry by hand"
    ))
}

fn no_kernel(release: &str) -> Error {
    none(&format!("the boot menu has no entry for the kernel {}", printable(release, 60)))
}

fn grub_entry(
    draft: &mut Draft<'_>,
    loader: &Loader,
    words: &[String],
    kernel: Option<&str>,
) -> Result<()> {
    let path = loader.generated.clone().unwrap_or_default();
    let cfg = draft.source(&path)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&cfg);
    if !text.contains("custom.cfg") || !text.contains("next_entry") {
        return Err(none(
            "GRUB's menu reads no custom.cfg or no next_entry (made by an own script?)",
        ));
    }
    let all = grub::own_entries(&cfg);
    let ordinary = || all.iter().filter(|entry| !entry.rescue);
    let of = |release: &str| ordinary().find(|one| one.kernel.ends_with(&format!("-{release}")));
    let entry = match kernel {
        Some(release) => of(release).ok_or_else(|| no_kernel(release))?,
        None => release(draft.place)
            .and_then(|release| of(&release))
            .or_else(|| ordinary().next())
            .ok_or_else(|| none("GRUB's menu has no entry for Linux"))?,
    };
    let block = grub::trial_block(&cfg, entry, words);
    let custom = format!("{}/custom.cfg", path.trim_end_matches("/grub.cfg"));
    match draft.place.read(&custom)? {
        None => draft.make_with(&custom, block.into_bytes(), Ours::Whole)?,
        Some(found) => {
            if grub::without_block(&found.bytes).is_some() {
                return Err(Error::of(
                    ErrorKind::Loader,
                    format!("{custom} holds a trial already; unpersist first"),
                ));
            }
            let mut new = found.bytes.clone();
            if !new.is_empty() && !new.ends_with(b"\n") {
                return Err(Error::of(
                    ErrorKind::Loader,
                    format!("cannot change {custom}: its last line has no end"),
                ));
            }
            new.extend_from_slice(block.as_bytes());
            draft.replace(&custom, found, new, Ours::Block);
        }
    }
    next_entry(draft, loader)
}

/// `next_entry` of GRUB's environment block, as `grub-reboot` sets it.
fn next_entry(draft: &mut Draft<'_>, loader: &Loader) -> Result<()> {
    let cfg = loader.generated.clone().unwrap_or_default();
    let path = format!("{}/grubenv", cfg.trim_end_matches("/grub.cfg"));
    writable_by_grub(draft.place, &path)?;
    let not = |why: String| Error::of(ErrorKind::Loader, format!("cannot change {path}: {why}"));
    match draft.place.read(&path)? {
        None => {
            let new = grubenv::set(&grubenv::empty(), "next_entry", grub::TRIAL).map_err(not)?;
            draft.make_with(&path, new, Ours::Whole)
        }
        Some(found) => {
            let range = grubenv::variable(&found.bytes, "next_entry").map_err(not)?;
            if range.is_some_and(|range| !found.bytes[range].is_empty()) {
                return Err(Error::of(
                    ErrorKind::Loader,
                    format!(
                        "{path} asks for another entry at the next boot (next_entry); boot that first"
                    ),
                ));
            }
            let new = grubenv::set(&found.bytes, "next_entry", grub::TRIAL).map_err(not)?;
            draft.replace(&path, found, new, Ours::NextEntry);
            Ok(())
        }
    }
}

/// GRUB forgets `next_entry` by writing its block: where it cannot, the trial would come again at
/// every boot.
fn writable_by_grub(place: &Tree, path: &str) -> Result<()> {
    if !place.is_system() {
        return Ok(());
    }
    let real = place.real(path).unwrap_or_else(|| path.to_owned());
    let mounts = place.text("/proc/self/mountinfo").unwrap_or_default();
    match mount_of(&mounts, &real) {
        Some((kind, device)) if !can_write(&kind, &device) => Err(none(&format!(
            "GRUB cannot write its environment block on {kind} ({device}), and would start the \
             trial again at every boot"
        ))),
        _ => Ok(()),
    }
}

fn can_write(kind: &str, device: &str) -> bool {
    let plain = ["ext2", "ext3", "ext4", "xfs", "vfat"].contains(&kind);
    plain && !["/dev/mapper/", "/dev/dm-", "/dev/md"].iter().any(|start| device.starts_with(start))
}

/// File system and device of the mount that holds a path, by proc_pid_mountinfo(5).
fn mount_of(mounts: &str, path: &str) -> Option<(String, String)> {
    let mut best: Option<(usize, (String, String))> = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(point) = before.split(' ').nth(4) else { continue };
        let inside = point == "/"
            || path
                .strip_prefix(point)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let mut words = after.split(' ');
        let (Some(kind), Some(device)) = (words.next(), words.next()) else { continue };
        if inside && best.as_ref().is_none_or(|(length, _)| point.len() >= *length) {
            best = Some((point.len(), (kind.to_owned(), device.to_owned())));
        }
    }
    best.map(|(_, mount)| mount)
}

fn release(place: &Tree) -> Option<String> {
    place.text("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned())
}

fn entry_file(
    draft: &mut Draft<'_>,
    loader: &Loader,
    (words, kernel): (&[String], Option<&str>),
    path: &str,
) -> Result<()> {
    let release = release(draft.place);
    let selected = efi::variable(draft.place, "LoaderEntrySelected");
    let mut best: Option<(u8, String, Vec<u8>)> = None;
    for (file, form) in &loader.files {
        if *form != FileForm::Bls {
            continue;
        }
        let Some(found) = draft.place.read(file)? else { continue };
        let Ok(spots) = form::spots(form, &found.bytes) else { continue };
        if spots.iter().all(|spot| spot.rescue) {
            continue;
        }
        let text = String::from_utf8_lossy(&found.bytes);
        if kernel.is_some_and(|kernel| !names_kernel(&text, kernel)) {
            continue;
        }
        let runs = release.as_ref().is_some_and(|release| text.contains(release.as_str()));
        let chosen = selected.as_ref().is_some_and(|name| file.ends_with(&format!("/{name}")));
        let rank = if chosen { 2 } else { u8::from(runs) };
        if best.as_ref().is_none_or(|(other, ..)| rank >= *other) {
            best = Some((rank, file.clone(), found.bytes));
        }
    }
    let (_, file, text) = best.ok_or_else(|| match kernel {
        Some(kernel) => no_kernel(kernel),
        None => none("there is no entry for Linux with parameters of its own"),
    })?;
    let new = form::add(&FileForm::Bls, &retitled(&text), words).map_err(|why| none(&why))?;
    draft.sources.push((file, Some(text)));
    draft.make(path, new)
}

/// Whether an entry boots this release: its `version` says so, or its kernel's name ends so.
fn names_kernel(entry: &str, release: &str) -> bool {
    entry.lines().any(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["version", version] => version == release,
        ["linux", kernel] => {
            kernel.ends_with(&format!("-{release}")) || kernel.contains(&format!("/{release}/"))
        }
        _ => false,
    })
}

fn retitled(entry: &[u8]) -> Vec<u8> {
    let mut new =
        b"# Written by `quietcores persist --trial`.\ntitle quietcores: one boot on trial\n"
            .to_vec();
    for line in entry.split_inclusive(|b| *b == b'\n') {
        let is_title =
            line.starts_with(b"title") && line.get(5).is_some_and(u8::is_ascii_whitespace);
        if !is_title {
            new.extend_from_slice(line);
        }
    }
    new
}

/// tryboot.txt stands in for config.txt for one boot and names another command line.
///
/// # Source
/// The Raspberry Pi documentation, "tryboot" under config.txt.
fn tryboot(draft: &mut Draft<'_>, loader: &Loader, words: &[String]) -> Result<()> {
    let (path, form) = loader.files.first().ok_or_else(|| none("there is no cmdline.txt"))?;
    let dir = ["/boot/firmware", "/boot"]
        .into_iter()
        .find(|dir| draft.place.exists(&format!("{dir}/config.txt")))
        .unwrap_or("/boot/firmware");
    let text = draft.source(path)?.ok_or_else(|| none("there is no cmdline.txt"))?;
    let line = form::add(form, &text, words)
        .map_err(|why| Error::of(ErrorKind::Loader, format!("cannot understand {path}: {why}")))?;
    let mut config = draft.source(&format!("{dir}/config.txt"))?.unwrap_or_default();
    if !config.is_empty() && !config.ends_with(b"\n") {
        config.push(b'\n');
    }
    config.extend_from_slice(
        b"[all]\n# quietcores: one boot on trial\ncmdline=cmdline-quietcores.txt\n",
    );
    let folder = split(path).0.to_owned();
    draft.make(&format!("{folder}/cmdline-quietcores.txt"), line)?;
    draft.make(&format!("{dir}/tryboot.txt"), config)?;
    draft.findings.extend(flag_of(&release(draft.place).unwrap_or_default()));
    Ok(())
}

/// Whether a kernel hands the flag to the firmware: those of Raspberry Pi do (`6.12.47+rpt-rpi-v8`, `6.6.31-v8+`,
/// Ubuntu's `6.8.0-1013-raspi`); mainline's driver of the firmware, and with it Debian's 6.12, does not.
fn flag_of(release: &str) -> Option<Finding> {
    let own = ["rpi", "raspi", "-v6", "-v7", "-v8"].iter().any(|part| release.contains(part));
    (!own).then(|| {
        Finding::new(
            Severity::Warning,
            "persist.tryboot_kernel",
            "the kernel that runs may not hand the flag for one boot to the firmware",
        )
        .evidence(format!("{}: kernels of Raspberry Pi's own do", printable(release, 60)))
        .effect("the next boot is an ordinary one then, and the trial is not started")
        .remedy("boot a kernel of Raspberry Pi OS for the trial, or persist without --trial")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_known_by_the_kernel_that_it_boots() {
        let entry = "title Debian\nversion 6.12.9-amd64\nlinux /vmlinuz\n";
        assert!(names_kernel(entry, "6.12.9-amd64"));
        assert!(!names_kernel(entry, "6.12.9"));
        assert!(names_kernel("linux /vmlinuz-6.1.0-rt\n", "6.1.0-rt"));
        assert!(names_kernel("linux /id/6.1.0-rt/linux\n", "6.1.0-rt"));
        assert!(!names_kernel("linux /vmlinuz-6.1.0-rt-amd64\n", "6.1.0-rt"));
    }

    #[test]
    fn kernels_that_know_no_flag_for_one_boot_are_told_of() {
        for own in ["6.12.47+rpt-rpi-v8", "6.6.31-v8+", "6.8.0-1013-raspi", "6.12.1-v8-16k+"] {
            assert_eq!(flag_of(own), None, "{own}");
        }
        assert_eq!(flag_of("6.12.117+deb13-arm64").unwrap().id, "persist.tryboot_kernel");
    }

    #[test]
    fn the_mount_of_a_file_is_the_innermost_one() {
        let mounts = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
                      30 22 254:2 / /boot rw shared:9 - btrfs /dev/vda2 rw\n\
                      31 30 8:1 / /boot/efi rw - vfat /dev/sda1 rw\n";
        let mount = |path| mount_of(mounts, path).unwrap().0;
        assert_eq!(mount("/boot/grub/grubenv"), "btrfs");
        assert_eq!(mount("/boot/efi/x"), "vfat");
        assert_eq!(mount("/bootstrap"), "ext4");
        assert!(!can_write("btrfs", "/dev/vda2") && !can_write("ext4", "/dev/mapper/vg-boot"));
        assert!(can_write("ext4", "/dev/nvme0n1p2"));
    }
}
